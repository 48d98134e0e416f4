// The live view of one group: bars of positions, the time line of roles, the table and the list of events. Each row is
// the word of its own node; only the lag is the leader's. Nothing is guessed: what a node did not say is "?".
"use strict";
import { live } from "./stream.js";

const view = document.getElementById("view");
const name = view.dataset.group;
const nodes = new Map(); // By address, in the order of the console.
const events = []; // In order of arrival; at most EVENTS_MAX.
const EVENTS_MAX = 1000;
const EVENTS_SHOWN = 50;
const WINDOW_MIN = 2000;
// After three missed states a node's values are old: it sends one each second at least.
const STALE_MS = 3500;
const SAID_EVERY_MS = 2000;
const LETTERS = { FOLLOWER: "F", CANDIDATE: "C", LEADER: "L", GONE: "✕" };
let span_s = 60;
let isPaused = false;
let isDrawn = true;
let clock_ms = 0; // The console's clock less that of this browser.
let said_ms = 0;

const known = (value) => (value === undefined ? "?" : value.toLocaleString("en"));
const now = () => Date.now() + clock_ms;
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });
const time = (at_ms) => CLOCK.format(at_ms);

function element(parent, tag, attributes = {}, text = "") {
  const isSvg = ["svg", "rect", "line", "text"].includes(tag);
  const made = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  parent.append(made);
  return made;
}

function take(kind, data) {
  const status = document.getElementById("live");
  if (kind === "broken") {
    status.textContent = "not live: the console does not answer; retrying";
    return;
  }
  status.textContent = "live";
  view.hidden = false;
  if (kind === "whole") {
    const group = data.groups.find((each) => each.group === name);
    if (!group) return;
    nodes.clear();
    events.length = 0;
    for (const node of group.nodes) put(node);
    events.push(...group.events);
  } else {
    for (const node of data.nodes) if (node.group === name) put(node);
    for (const event of data.events) if (event.group === name) add(event);
    if (data.lost_count) status.textContent = `live; ${known(data.lost_count)} events were left out`;
  }
  if (events.length > EVENTS_MAX) events.splice(0, events.length - EVENTS_MAX);
  draw();
}

function put(node) {
  nodes.set(node.address, node);
  // Upper bound of the difference: the answer was under way for a moment.
  if (node.seen_ms && node.is_live) clock_ms = node.seen_ms - Date.now();
}

function add(event) {
  if (events.some((each) => each.id === event.id && each.address === event.address)) return;
  events.push(event);
  // For screen readers: changes of roles only, and not each one in a storm.
  if (["elected", "stepped_down", "leader_lost"].includes(event.kind) && Date.now() - said_ms > SAID_EVERY_MS) {
    said_ms = Date.now();
    document.getElementById("announce").textContent = `${event.node} ${event.text}`;
  }
}

function draw() {
  if (isPaused || !isDrawn) return;
  isDrawn = false;
  requestAnimationFrame(() => {
    isDrawn = true;
    drawBars();
    drawLanes();
    drawTable();
    drawEvents();
  });
}

function leaderOf() {
  const leading = [...nodes.values()].filter((node) => node.is_live && node.state.role === "LEADER");
  return leading.sort((one, other) => other.state.term - one.state.term)[0];
}

function drawBars() {
  const states = [...nodes.values()].map((node) => node.state).filter(Boolean);
  const last = Math.max(...states.map((state) => state.last_index ?? -1), 0);
  const lowest = Math.min(...states.map((state) => state.commit_index ?? last), last);
  // Absolute indexes never move visibly: the bars show a window that has all positions that differ.
  const size = Math.max(WINDOW_MIN, Math.ceil((last - lowest) * 1.2));
  const begin = Math.max(last - size, -1);
  const scale = (index) => Math.min(Math.max(((index - begin) / Math.max(last - begin, 1)) * 1000, 0), 1000);
  document.getElementById("window").textContent = known(size);
  const commit = leaderOf()?.state.commit_index;
  const bars = document.getElementById("bars");
  bars.replaceChildren();
  for (const node of nodes.values()) {
    const row = element(bars, "div", { class: "bar" });
    const role = node.is_live ? node.state.role.toLowerCase() : "does not answer";
    element(row, "span", {}, `${node.name} ${role}`);
    const svg = element(row, "svg", { viewBox: "0 0 1000 20", preserveAspectRatio: "none", "aria-hidden": "true" });
    const state = node.state ?? {};
    for (const [field, kind] of [["last_index", "written"], ["durable_index", "durable"], ["commit_index", "committed"]]) {
      if (state[field] !== undefined) {
        element(svg, "rect", { class: kind, x: 0, y: 3, height: 14, width: scale(state[field]), opacity: node.is_live ? 1 : 0.4 });
      }
    }
    if (commit !== undefined) {
      const x = scale(commit);
      element(svg, "line", { class: "commit-mark", x1: x, x2: x, y1: 0, y2: 20 });
    }
    element(row, "span", { class: "n" }, known(state.last_index));
  }
}

function rolesOf(address, begin_ms) {
  // Pieces of [begin, now): a role lasts from its event to the next one of that node. Before the first it is not known.
  const pieces = [];
  for (const event of events) {
    if (event.address !== address || event.kind === "gap") continue; // In the order of the node's sequence.
    const previous = pieces.at(-1);
    if (!previous || previous.role !== event.role) pieces.push({ at_ms: event.at_ms, role: event.role });
  }
  const node = nodes.get(address);
  if (!node.is_live) pieces.push({ at_ms: Math.max(node.seen_ms ?? begin_ms, begin_ms), role: "GONE" });
  else if (pieces.at(-1)?.role !== node.state.role) pieces.push({ at_ms: node.seen_ms, role: node.state.role });
  return pieces;
}

const MARK_WIDTH = 8;
const MARKS = { pre_vote_begun: "P", election_begun: "C", elected: "L", vote_answered: "v", transfer_begun: "⇄", membership_changed: "±" };

function drawLanes() {
  const end_ms = now();
  const begin_ms = end_ms - span_s * 1000;
  const lanes = document.getElementById("lanes");
  lanes.replaceChildren();
  for (const node of nodes.values()) {
    const lane = element(lanes, "div", { class: "lane" });
    element(lane, "span", {}, node.name);
    const svg = element(lane, "svg", { "aria-hidden": "true" });
    // In pixels, so that letters keep their shape.
    const width = svg.getBoundingClientRect().width;
    const scale = (at_ms) => Math.min(Math.max((at_ms - begin_ms) / (end_ms - begin_ms), 0), 1) * width;
    const pieces = rolesOf(node.address, begin_ms);
    pieces.forEach((piece, number) => {
      const from = scale(piece.at_ms);
      const to = scale(pieces[number + 1]?.at_ms ?? end_ms);
      if (to <= from) return;
      element(svg, "rect", { class: `role-${piece.role}`, x: from, y: 12, width: to - from, height: 14 });
      if (to - from > 12) element(svg, "text", { x: from + 2, y: 23 }, LETTERS[piece.role] ?? "?");
    });
    const seen = events.filter((event) => event.address === node.address && event.at_ms >= begin_ms && MARKS[event.kind]);
    for (const { x, text } of clusters(seen.map((event) => [scale(event.at_ms), MARKS[event.kind]]))) {
      element(svg, "text", { class: "mark", x, y: 10 }, text);
    }
  }
}

function clusters(marks) {
  // An election takes milliseconds: marks that would cover each other are written one after the other.
  const found = [];
  for (const [x, mark] of marks) {
    const last = found.at(-1);
    if (last && x < last.x + last.text.length * MARK_WIDTH) last.text += mark;
    else found.push({ x, text: mark });
  }
  return found;
}

function roleText(state) {
  if (state.role === "CANDIDATE") return state.is_pre_vote ? "asks for pre-votes" : "candidate";
  const self = state.members.find((member) => member.id === state.self_id);
  return self && !self.is_voter ? "learner" : state.role.toLowerCase();
}

function drawTable() {
  const leader = leaderOf()?.state;
  for (const node of nodes.values()) {
    const row = document.querySelector(`#nodes tr[data-address="${CSS.escape(node.address)}"]`);
    if (!row) continue;
    const state = node.state ?? {};
    const peer = leader?.peers.find((each) => each.id === state.self_id);
    const isLeader = leader && leader.self_id === state.self_id;
    const lag = isLeader ? 0 : peer?.match_index === undefined ? undefined : leader.last_index - peer.match_index;
    const isOld = !node.is_live || now() - node.seen_ms > STALE_MS;
    const note = node.fault ?? (peer?.is_stalled ? "receives no entries" : isOld ? "its values are old" : "");
    const texts = [
      node.is_live ? roleText(state) : "?", known(state.term), state.leader_id ?? "?", known(state.last_index),
      known(state.durable_index), known(state.commit_index), known(state.applied_index), known(lag), note,
    ];
    row.classList.toggle("stale", isOld);
    row.querySelector("th").textContent = node.name;
    row.querySelectorAll("td").forEach((cell, number) => {
      if (cell.textContent !== texts[number]) cell.textContent = texts[number];
    });
  }
}

function drawEvents() {
  if (!events.length) return;
  const list = document.getElementById("events");
  const newest = [...events].sort((one, other) => other.at_ms - one.at_ms).slice(0, EVENTS_SHOWN);
  if (list.dataset.first === newest[0].address + newest[0].id) return;
  list.dataset.first = newest[0].address + newest[0].id;
  list.replaceChildren();
  for (const event of newest) {
    const item = element(list, "li");
    element(item, "time", { datetime: new Date(event.at_ms).toISOString() }, time(event.at_ms));
    item.append(" ");
    element(item, "b", {}, event.node);
    item.append(` ${event.text}`);
  }
}

for (const each of document.querySelectorAll("#events time[data-at]")) each.textContent = time(Number(each.dataset.at));
document.getElementById("pause").addEventListener("click", (event) => {
  isPaused = !isPaused;
  event.target.setAttribute("aria-pressed", String(isPaused));
  event.target.textContent = isPaused ? "Continue" : "Pause";
  draw();
});
for (const button of document.querySelectorAll("button.span")) {
  button.addEventListener("click", () => {
    span_s = Number(button.dataset.span);
    for (const each of document.querySelectorAll("button.span")) each.setAttribute("aria-pressed", String(each === button));
    draw();
  });
}
live(take);
