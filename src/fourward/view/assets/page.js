"use strict";

const PAUSE_MS = 140; // pause without zooming or changes, after which a large graph is redrawn
const TRANSITION_MS = 700; // time in which nodes move to another layering
const scene = JSON.parse(document.getElementById("scene").textContent);
const graph = new Graph(scene);
const byId = (id) => document.getElementById(id);
const view = byId("view");
const painter = new Painter(view, byId("stage"), graph);
const sidebar = new Sidebar(graph, (v) => select(v, true));

/** The state of the page. Nodes are indices, -1 for none; `step` is a column of the layering. */
const state = {
  layering: 0, layers: null, column: null, kind: null,
  visible: null, count: 0, partial: "",
  selected: -1, ancestors: null, descendants: null,
  current: -1, matches: null,
  step: -1, sample: 0, playing: null,
  colouring: -1, // of graph.colourings; -1 for kinds
};
let layout = null;
let frame = 0;
let pauseTimer = 0;
let transition = null;

/** Redraw the nodes, and with `withEdges` all of it, in the next frame. */
function redraw(withEdges = false) {
  frame = Math.max(frame, withEdges ? 2 : 1);
  if (redraw.pending) return;
  redraw.pending = requestAnimationFrame(() => {
    redraw.pending = 0;
    if (frame === 2) painter.redraw(state);
    else painter.paintNodes(state);
    frame = 0;
  });
}

/** Redraw everything as soon as the user pauses. */
function redrawAfterPause() {
  clearTimeout(pauseTimer);
  pauseTimer = setTimeout(() => redraw(true), PAUSE_MS);
}

function announce(text) {
  byId("status").textContent = text;
}

const zoom = d3
  .zoom()
  .scaleExtent([0.4, 60])
  .on("zoom", ({ transform }) => {
    painter.applyZoom(transform, state);
    showTip();
    if (painter.heavy) redrawAfterPause();
  });
const zoomTarget = d3.select(view).call(zoom).on("dblclick.zoom", null);
const prefersReducedMotion = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Move the view, without a transition if the user prefers reduced motion. */
function moveView(action, ...args) {
  (prefersReducedMotion() ? zoomTarget : zoomTarget.transition().duration(350)).call(action, ...args);
}

/** Zoom around the current or selected neuron, if it is in view. */
function zoomBy(factor) {
  const v = state.current >= 0 ? state.current : state.selected;
  moveView(zoom.scaleBy, factor, v >= 0 && !isOutside(v) ? painter.viewPosition(v) : null);
}

function setLayering(index, animated) {
  const lay = graph.layerings[index];
  Object.assign(state, { layering: index, layers: lay.layers, column: lay.column, kind: lay.kind });
  const goal = graph.layout(index);
  const start = layout;
  transition?.stop();
  if (state.step >= 0) setStep(Math.min(state.step, lay.layers.length - 1));
  byId("step").max = lay.layers.length - 1;
  sidebar.showDetails(state);
  sidebar.search(byId("search").value, state);
  showLegend(byId("legend"), graph, painter, state);
  if (!animated || prefersReducedMotion()) return finishTransition(goal);
  painter.edges.classList.toggle("away", painter.heavy);
  transition = d3.timer((elapsed) => {
    const t = d3.easeCubicInOut(Math.min(elapsed / TRANSITION_MS, 1));
    if (elapsed >= TRANSITION_MS) return finishTransition(goal);
    const between = (from, to) => from.map((value, i) => value + (to[i] - value) * t);
    layout = { x: between(start.x, goal.x), y: between(start.y, goal.y), bend: between(start.bend, goal.bend) };
    painter.setLayout(layout, lay.layers.length);
    if (painter.heavy) painter.paintNodes(state);
    else painter.redraw(state);
  });
}

function finishTransition(goal) {
  transition?.stop();
  transition = null;
  layout = goal;
  painter.edges.classList.remove("away");
  painter.setLayout(layout, state.layers.length);
  redraw(true);
  showTip();
}

function hideWeak(percent) {
  const { visible, count, least } = graph.hideWeak(percent / 100);
  Object.assign(state, { visible, count });
  const limit = percent > 0 && least !== null ? ` of size ${formatNumber(least)} or more` : "";
  const total = pluralize(graph.numEdges, scene.allEdges ? "edge" : "shown edge");
  byId("weak-text").textContent = `${count.toLocaleString("en")} of ${total}${limit}`;
  state.partial = scene.allEdges && count === graph.numEdges ? "" : "Counted along the visible edges.";
  select(state.selected, false);
  if (painter.heavy) redrawAfterPause();
  else redraw(true);
}

/** Select a neuron, or none with -1: highlight its ancestors and descendants and show its properties. */
function select(v, centre) {
  state.selected = v;
  state.ancestors = v < 0 ? null : graph.reach(v, true, state.visible);
  state.descendants = v < 0 ? null : graph.reach(v, false, state.visible);
  if (v >= 0) {
    state.current = v;
    if (centre && isOutside(v)) moveView(zoom.translateTo, painter.x[v], painter.y[v]);
    announce(`Selected: ${sidebar.sentence(v, state)}.`);
  }
  sidebar.showDetails(state);
  showTip();
  redraw();
}

function isOutside(v) {
  const [x, y] = painter.viewPosition(v);
  return x < 20 || y < 20 || x > painter.width - 20 || y > painter.height - 20;
}

/** Make a neuron the current one, with the mouse or the keys; -1 for none. */
function setCurrent(v, aloud) {
  if (v === state.current) return;
  state.current = v;
  if (aloud && v >= 0) {
    announce(`${sidebar.sentence(v, state)}.`);
    if (isOutside(v)) moveView(zoom.translateTo, painter.x[v], painter.y[v]);
  }
  view.classList.toggle("pointing", v >= 0);
  showTip();
  redraw();
}

/** Show the properties of the current neuron beside it. */
function showTip() {
  const tip = byId("tip");
  tip.hidden = state.current < 0 || state.current === state.selected; // the sidebar shows the selected one
  if (tip.hidden) return;
  tip.textContent = sidebar.sentence(state.current, state, "\n");
  const [x, y] = painter.viewPosition(state.current);
  const [wide, high] = [tip.offsetWidth, tip.offsetHeight];
  tip.style.left = `${Math.max(4, x + wide + 24 > painter.width ? x - wide - 16 : x + 16)}px`;
  tip.style.top = `${Math.min(Math.max(4, y - high / 2), Math.max(4, painter.height - high - 4))}px`;
}

/** Go to a step of the forward pass: the activations up to this column are there; -1 leaves the pass. */
function setStep(step) {
  const previous = state.step;
  state.step = step;
  if (previous < 0 !== step < 0) showLegend(byId("legend"), graph, painter, state);
  byId("step").value = Math.max(step, 0);
  const layer = state.layers[Math.max(step, 0)];
  byId("step-text").textContent = step < 0 ? "" : `${layer}`;
  byId("step").setAttribute("aria-valuetext", step < 0 ? "not started" : `layer ${layer}`);
  byId("back").disabled = step < 0;
  if (step >= 0) {
    const nodes = Array.from(state.column.keys()).filter((v) => state.column[v] === step);
    const edges = nodes.reduce((sum, v) => sum + graph.edgesAt(v, true).filter((e) => state.visible[e]).length, 0);
    const sample = graph.samples[state.sample]?.name;
    const count = `${pluralize(nodes.length, "neuron")} from ${pluralize(edges, scene.allEdges ? "edge" : "shown edge")}`;
    announce(`Layer ${layer}: ${count}${sample ? `, ${sample}` : ""}.`);
  }
  redraw();
}

function play(on) {
  clearInterval(state.playing);
  state.playing = null;
  if (on) {
    if (state.step >= state.layers.length - 1) setStep(-1);
    const advance = () => {
      if (state.step >= state.layers.length - 1) play(false);
      else setStep(state.step + 1);
    };
    advance();
    if (state.step < state.layers.length - 1) {
      state.playing = setInterval(advance, Math.min(Math.max(12000 / state.layers.length, 60), 900));
    }
  }
  byId("play").textContent = state.playing ? "Pause" : "Play";
}

function stepBy(by) {
  play(false);
  setStep(Math.min(Math.max(state.step + by, -1), state.layers.length - 1));
}

function clear() {
  play(false);
  if (state.step >= 0) setStep(-1);
  byId("search").value = "";
  state.matches = null;
  sidebar.search("", state);
  state.current = -1;
  select(-1, false);
  announce("Cleared.");
}

/** The neuron next to the current one: up or down in its layer, or the nearest in the next layer that has any. */
function neighbour(dx, dy) {
  const v = state.current;
  if (v < 0) return graph.byDegree[0];
  const { x, y } = layout;
  let best = v;
  let least = Infinity;
  for (let u = 0; u < graph.numNodes; u++) {
    const [right, down] = [(state.column[u] - state.column[v]) * dx, (y[u] - y[v]) * dy];
    if (dx ? right <= 0 : state.column[u] !== state.column[v] || down <= 0) continue;
    const distance = dx ? Math.abs(x[u] - x[v]) * 1e3 + Math.abs(y[u] - y[v]) : down;
    if (distance < least) [best, least] = [u, distance];
  }
  return best;
}

const KEYS = {
  ArrowLeft: () => setCurrent(neighbour(-1, 0), true),
  ArrowRight: () => setCurrent(neighbour(1, 0), true),
  ArrowUp: () => setCurrent(neighbour(0, -1), true),
  ArrowDown: () => setCurrent(neighbour(0, 1), true),
  Enter: () => state.current >= 0 && select(state.current, true),
  " ": () => play(!state.playing),
  ".": () => stepBy(1),
  ",": () => stepBy(-1),
  "+": () => zoomBy(1.5),
  "=": () => zoomBy(1.5),
  "-": () => zoomBy(1 / 1.5),
  0: () => moveView(zoom.transform, d3.zoomIdentity),
  "/": () => byId("search").focus(),
};

const THEMES = ["system", "light", "dark"];
const dark = window.matchMedia("(prefers-color-scheme: dark)");
let theme = 0;

function setTheme(index) {
  theme = index;
  document.documentElement.classList.toggle("dark", theme === 2 || (theme === 0 && dark.matches));
  document.documentElement.style.colorScheme = theme === 0 ? "" : THEMES[theme];
  byId("theme").textContent = `Theme: ${THEMES[theme]}`;
  painter.readColours();
  showLegend(byId("legend"), graph, painter, state);
  redraw(true);
}

function options(select, names) {
  select.replaceChildren(...names.map((name, i) => Object.assign(element("option", name), { value: i })));
  select.disabled = names.length < 2;
}

function listen() {
  view.addEventListener("keydown", (event) => {
    if (event.target !== view || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && clear());
  const nodeAt = (event) => painter.nodeAt(...d3.pointer(event, view));
  view.addEventListener("pointermove", (event) => event.pointerType === "mouse" && setCurrent(nodeAt(event), false));
  view.addEventListener("pointerleave", () => setCurrent(-1, false));
  view.addEventListener("click", (event) => select(nodeAt(event), false));
  byId("search").addEventListener("input", ({ target }) => {
    const hits = sidebar.search(target.value, state);
    state.matches = target.value.trim() ? hits : null;
    announce(byId("result-count").textContent + ".");
    redraw();
  });
  byId("search").addEventListener("keydown", ({ key, target }) => {
    const [first] = key === "Enter" && target.value.trim() ? sidebar.search(target.value, state) : [];
    if (first !== undefined) select(first, true);
  });
  byId("layering").addEventListener("change", ({ target }) => {
    setLayering(Number(target.value), true);
    announce(`Layering: ${graph.layerings[state.layering].name}, ${state.layers.length} layers.`);
  });
  byId("colouring").addEventListener("change", ({ target }) => {
    state.colouring = Number(target.value) - 1;
    showLegend(byId("legend"), graph, painter, state);
    announce(`Colour: ${graph.colourings[state.colouring]?.name ?? "place in the graph"}.`);
    redraw();
  });
  byId("weak").addEventListener("input", ({ target }) => hideWeak(Number(target.value)));
  byId("sample").addEventListener("change", ({ target }) => {
    state.sample = Number(target.value);
    sidebar.showDetails(state);
    setStep(state.step);
  });
  byId("play").addEventListener("click", () => play(!state.playing));
  byId("back").addEventListener("click", () => stepBy(-1));
  byId("next").addEventListener("click", () => stepBy(1));
  byId("step").addEventListener("input", ({ target }) => (play(false), setStep(Number(target.value))));
  byId("zoom-in").addEventListener("click", () => zoomBy(1.5));
  byId("zoom-out").addEventListener("click", () => zoomBy(1 / 1.5));
  byId("reset").addEventListener("click", () => moveView(zoom.transform, d3.zoomIdentity));
  byId("theme").addEventListener("click", () => setTheme((theme + 1) % 3));
  dark.addEventListener("change", () => setTheme(theme));
  new ResizeObserver(() => {
    painter.resize();
    painter.setLayout(layout, state.layers.length);
    redraw(true);
  }).observe(view);
}

function start() {
  options(byId("layering"), graph.layerings.map(({ name }) => name));
  options(byId("sample"), graph.samples.map(({ name }) => name));
  options(byId("colouring"), ["place in the graph", ...graph.colourings.map(({ name }) => name)]);
  state.colouring = scene.colouring;
  byId("colouring").value = state.colouring + 1;
  document.querySelector(".colourings").hidden = graph.colourings.length === 0;
  document.querySelector(".samples").hidden = graph.samples.length === 0;
  document.querySelector(".weights").hidden = !graph.weight;
  byId("shown").textContent = scene.shown;
  painter.readColours();
  painter.resize();
  Object.assign(state, graph.hideWeak(0));
  setLayering(0, false);
  setTheme(0);
  hideWeak(0);
  setStep(-1);
  listen();
}

start();
window.fourward = { graph, state, painter, isMoving: () => transition !== null }; // for the console and for tests
