"use strict";

const STILL = 140; // milliseconds without a movement or a change, after which a heavy graph is drawn anew
const MOVE = 700; // milliseconds in which nodes move to another layering
const scene = JSON.parse(document.getElementById("scene").textContent);
const graph = new Graph(scene);
const find = (id) => document.getElementById(id);
const view = find("view");
const painter = new Painter(view, find("stage"), graph);
const panel = new Panel(graph, (v) => choose(v, true));

/** Everything that decides what is drawn. Nodes are numbers, -1 is none; `step` is a column of the layering. */
const state = {
  layering: 0, layers: null, column: null, kind: null,
  kept: null, count: 0, partial: "",
  selected: -1, ancestors: null, descendants: null,
  current: -1, matches: null,
  step: -1, sample: 0, playing: null,
};
let layout = null;
let frame = 0;
let still = 0;
let moving = null;

/** Draw the nodes, and the edges where they changed, before the next frame. */
function redraw(edgesToo = false) {
  frame = Math.max(frame, edgesToo ? 2 : 1);
  if (redraw.asked) return;
  redraw.asked = requestAnimationFrame(() => {
    redraw.asked = 0;
    if (frame === 2) painter.settle(state);
    else painter.paintNodes(state);
    frame = 0;
  });
}

/** Draw all of it as soon as the user pauses. */
function redrawStill() {
  clearTimeout(still);
  still = setTimeout(() => redraw(true), STILL);
}

function say(text) {
  find("status").textContent = text;
}

const zoom = d3
  .zoom()
  .scaleExtent([0.4, 60])
  .on("zoom", ({ transform }) => {
    painter.follow(transform, state);
    showTip();
    if (painter.heavy) redrawStill();
  });
const zoomed = d3.select(view).call(zoom).on("dblclick.zoom", null);
const calm = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Move the view; at once for those who don't like movement. */
function glide(act, ...rest) {
  (calm() ? zoomed : zoomed.transition().duration(350)).call(act, ...rest);
}

/** Zoom about the neuron that is pointed at or chosen, if it is seen. */
function zoomBy(factor) {
  const v = state.current >= 0 ? state.current : state.selected;
  glide(zoom.scaleBy, factor, v >= 0 && !outside(v) ? painter.spot(v) : null);
}

function setLayering(index, animated) {
  const lay = graph.layerings[index];
  Object.assign(state, { layering: index, layers: lay.layers, column: lay.column, kind: lay.kind });
  const goal = graph.layout(index);
  const start = layout;
  moving?.stop();
  if (state.step >= 0) setStep(Math.min(state.step, lay.layers.length - 1));
  find("step").max = lay.layers.length - 1;
  panel.showDetails(state);
  panel.search(find("search").value, state);
  showLegend(find("legend"), graph, painter, state);
  if (!animated || calm()) return arrive(goal);
  painter.edges.classList.toggle("away", painter.heavy);
  moving = d3.timer((elapsed) => {
    const t = d3.easeCubicInOut(Math.min(elapsed / MOVE, 1));
    if (elapsed >= MOVE) return arrive(goal);
    const between = (from, to) => from.map((value, i) => value + (to[i] - value) * t);
    layout = { x: between(start.x, goal.x), y: between(start.y, goal.y), bow: between(start.bow, goal.bow) };
    painter.place(layout, lay.layers.length);
    if (painter.heavy) painter.paintNodes(state);
    else painter.settle(state);
  });
}

function arrive(goal) {
  moving?.stop();
  moving = null;
  layout = goal;
  painter.edges.classList.remove("away");
  painter.place(layout, state.layers.length);
  redraw(true);
  showTip();
}

function setWeak(percent) {
  const { kept, count, least } = graph.strong(percent / 100);
  Object.assign(state, { kept, count });
  const limit = percent > 0 && least !== null ? ` of size ${words(least)} or more` : "";
  const of = counted(graph.numEdges, scene.whole ? "edge" : "shown edge");
  find("weak-words").textContent = `${count.toLocaleString("en")} of ${of}${limit}`;
  state.partial = scene.whole && count === graph.numEdges ? "" : "Counted along the edges that are shown.";
  choose(state.selected, false);
  if (painter.heavy) redrawStill();
  else redraw(true);
}

/** Choose a neuron, or none with -1: light up its ancestors and descendants, and show what is known of it. */
function choose(v, centred) {
  state.selected = v;
  state.ancestors = v < 0 ? null : graph.reach(v, true, state.kept);
  state.descendants = v < 0 ? null : graph.reach(v, false, state.kept);
  if (v >= 0) {
    state.current = v;
    if (centred && outside(v)) glide(zoom.translateTo, painter.x[v], painter.y[v]);
    say(`Chosen: ${panel.sentence(v, state)}.`);
  }
  panel.showDetails(state);
  showTip();
  redraw();
}

function outside(v) {
  const [x, y] = painter.spot(v);
  return x < 20 || y < 20 || x > painter.width - 20 || y > painter.height - 20;
}

/** Point at a neuron, with the mouse or the keys; -1 for none. */
function point(v, aloud) {
  if (v === state.current) return;
  state.current = v;
  if (aloud && v >= 0) {
    say(`${panel.sentence(v, state)}.`);
    if (outside(v)) glide(zoom.translateTo, painter.x[v], painter.y[v]);
  }
  view.classList.toggle("pointing", v >= 0);
  showTip();
  redraw();
}

/** The facts beside the neuron that is pointed at. */
function showTip() {
  const tip = find("tip");
  tip.hidden = state.current < 0 || state.current === state.selected; // whose facts stand in the panel
  if (tip.hidden) return;
  tip.textContent = panel.sentence(state.current, state, "\n");
  const [x, y] = painter.spot(state.current);
  const [wide, high] = [tip.offsetWidth, tip.offsetHeight];
  tip.style.left = `${Math.max(4, x + wide + 24 > painter.width ? x - wide - 16 : x + 16)}px`;
  tip.style.top = `${Math.min(Math.max(4, y - high / 2), Math.max(4, painter.height - high - 4))}px`;
}

/** Go to a step of the forward pass: the activations up to this column are there; -1 leaves the pass. */
function setStep(step) {
  const before = state.step;
  state.step = step;
  if (before < 0 !== step < 0) showLegend(find("legend"), graph, painter, state);
  find("step").value = Math.max(step, 0);
  const layer = state.layers[Math.max(step, 0)];
  find("step-words").textContent = step < 0 ? "" : `${layer}`;
  find("step").setAttribute("aria-valuetext", step < 0 ? "not started" : `layer ${layer}`);
  find("back").disabled = step < 0;
  if (step >= 0) {
    const nodes = Array.from(state.column.keys()).filter((v) => state.column[v] === step);
    const edges = nodes.reduce((sum, v) => sum + graph.edgesAt(v, true).filter((e) => state.kept[e]).length, 0);
    const sample = graph.samples[state.sample]?.name;
    const count = `${counted(nodes.length, "neuron")} from ${counted(edges, scene.whole ? "edge" : "shown edge")}`;
    say(`Layer ${layer}: ${count}${sample ? `, ${sample}` : ""}.`);
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
  find("play").textContent = state.playing ? "Pause" : "Play";
}

function stepBy(by) {
  play(false);
  setStep(Math.min(Math.max(state.step + by, -1), state.layers.length - 1));
}

function clear() {
  play(false);
  if (state.step >= 0) setStep(-1);
  find("search").value = "";
  state.matches = null;
  panel.search("", state);
  state.current = -1;
  choose(-1, false);
  say("Cleared.");
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
  ArrowLeft: () => point(neighbour(-1, 0), true),
  ArrowRight: () => point(neighbour(1, 0), true),
  ArrowUp: () => point(neighbour(0, -1), true),
  ArrowDown: () => point(neighbour(0, 1), true),
  Enter: () => state.current >= 0 && choose(state.current, true),
  " ": () => play(!state.playing),
  ".": () => stepBy(1),
  ",": () => stepBy(-1),
  "+": () => zoomBy(1.5),
  "=": () => zoomBy(1.5),
  "-": () => zoomBy(1 / 1.5),
  0: () => glide(zoom.transform, d3.zoomIdentity),
  "/": () => find("search").focus(),
};

const THEMES = ["as the system", "light", "dark"];
const dark = window.matchMedia("(prefers-color-scheme: dark)");
let theme = 0;

function setTheme(index) {
  theme = index;
  document.documentElement.classList.toggle("dark", theme === 2 || (theme === 0 && dark.matches));
  document.documentElement.style.colorScheme = theme === 0 ? "" : THEMES[theme];
  find("theme").textContent = `Theme: ${THEMES[theme]}`;
  painter.readColours();
  showLegend(find("legend"), graph, painter, state);
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
  const spot = (event) => painter.nodeAt(...d3.pointer(event, view));
  view.addEventListener("pointermove", (event) => event.pointerType === "mouse" && point(spot(event), false));
  view.addEventListener("pointerleave", () => point(-1, false));
  view.addEventListener("click", (event) => choose(spot(event), false));
  find("search").addEventListener("input", ({ target }) => {
    const hits = panel.search(target.value, state);
    state.matches = target.value.trim() ? hits : null;
    say(find("found-words").textContent + ".");
    redraw();
  });
  find("search").addEventListener("keydown", ({ key, target }) => {
    const [first] = key === "Enter" && target.value.trim() ? panel.search(target.value, state) : [];
    if (first !== undefined) choose(first, true);
  });
  find("layering").addEventListener("change", ({ target }) => {
    setLayering(Number(target.value), true);
    say(`Layering: ${graph.layerings[state.layering].name}, ${state.layers.length} layers.`);
  });
  find("weak").addEventListener("input", ({ target }) => setWeak(Number(target.value)));
  find("sample").addEventListener("change", ({ target }) => {
    state.sample = Number(target.value);
    panel.showDetails(state);
    setStep(state.step);
  });
  find("play").addEventListener("click", () => play(!state.playing));
  find("back").addEventListener("click", () => stepBy(-1));
  find("next").addEventListener("click", () => stepBy(1));
  find("step").addEventListener("input", ({ target }) => (play(false), setStep(Number(target.value))));
  find("closer").addEventListener("click", () => zoomBy(1.5));
  find("farther").addEventListener("click", () => zoomBy(1 / 1.5));
  find("whole").addEventListener("click", () => glide(zoom.transform, d3.zoomIdentity));
  find("theme").addEventListener("click", () => setTheme((theme + 1) % 3));
  dark.addEventListener("change", () => setTheme(theme));
  new ResizeObserver(() => {
    painter.resize();
    painter.place(layout, state.layers.length);
    redraw(true);
  }).observe(view);
}

function start() {
  options(find("layering"), graph.layerings.map(({ name }) => name));
  options(find("sample"), graph.samples.map(({ name }) => name));
  document.querySelector(".samples").hidden = graph.samples.length === 0;
  document.querySelector(".weights").hidden = !graph.weight;
  find("shown").textContent = scene.shown;
  painter.readColours();
  painter.resize();
  Object.assign(state, graph.strong(0));
  setLayering(0, false);
  setTheme(0);
  setWeak(0);
  setStep(-1);
  listen();
}

start();
window.fourward = { graph, state, painter, isMoving: () => moving !== null }; // for the console, and for tests
