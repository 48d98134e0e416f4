// One stream of live data for all tabs of a browser: over HTTP/1.1 a browser opens six connections to a server, and a
// stream in each of seven tabs would stop all pages. A shared worker has the stream; without shared workers each tab
// has its own. A hidden tab takes nothing.
"use strict";

export function live(onMessage) {
  let end = null;
  const begin = () => { end = typeof SharedWorker === "function" ? shared(onMessage) : own(onMessage); };
  const stop = () => { if (end) { end(); end = null; } };
  document.addEventListener("visibilitychange", () => {
    stop();
    if (document.visibilityState === "visible") begin();
  });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", () => { if (!end) begin(); });
  if (document.visibilityState === "visible" && !end) begin();
}

function shared(onMessage) {
  const worker = new SharedWorker("/static/worker.js", { name: "dledger-console" });
  worker.port.onmessage = (event) => onMessage(event.data.kind, event.data.data);
  worker.port.postMessage("begin");
  return () => { worker.port.postMessage("end"); worker.port.close(); };
}

function own(onMessage) {
  const source = new EventSource("/events");
  source.addEventListener("whole", (event) => onMessage("whole", JSON.parse(event.data)));
  source.addEventListener("update", (event) => onMessage("update", JSON.parse(event.data)));
  source.onerror = () => onMessage("broken", null);
  return () => source.close();
}
