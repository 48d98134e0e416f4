// The shared worker of all tabs: it has one stream while at least one tab is visible, and passes on what it receives. A
// tab that begins later gets the whole again, by a new stream.
"use strict";

const ports = new Set();
let source = null;

function pass(kind, data) {
  for (const port of ports) port.postMessage({ kind, data });
}

function open() {
  if (source) source.close();
  source = new EventSource("/events");
  source.addEventListener("whole", (event) => pass("whole", JSON.parse(event.data)));
  source.addEventListener("update", (event) => pass("update", JSON.parse(event.data)));
  source.onerror = () => pass("broken", null);
}

onconnect = (event) => {
  const port = event.ports[0];
  port.onmessage = (message) => {
    if (message.data === "begin") {
      ports.add(port);
      open();
    } else {
      ports.delete(port);
      if (ports.size === 0 && source) { source.close(); source = null; }
    }
  };
};
