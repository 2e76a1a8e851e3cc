"use strict";

const MARGIN = { left: 52, right: 52, top: 26, bottom: 40 };
const OVERSCAN = 0.15; // fraction of the view's size that is drawn beyond each side so that panning doesn't show blank margins
const MAX_LIVE = 1500; // nodes and edges redrawn in each frame; more are moved as an image until the user pauses
const BINS = 9; // shades of weight, an odd number
const BUNDLE = 20; // edges in one stroke: where strokes overlap the ink gets darker, within one it doesn't
const EDGES_PER_FRAME = 2000;
const MAX_LABELS = 500;
const HUB = 100; // edges of a selected node from which on they are drawn thin
const COLOURS = [
  "paper", "ink", "quiet", "source", "hidden", "movable", "sink", "outline", "edge", "band", "lit", "mark",
  "below-2", "below-1", "zero", "above-1", "above-2",
];

/** Draws a graph on two canvases: edges below, nodes and highlighted edges above. */
class Painter {
  /**
   * @param {HTMLElement} view the visible part
   * @param {HTMLElement} stage holds the canvases; moved as a whole while a large graph is panned
   * @param {Graph} graph
   */
  constructor(view, stage, graph) {
    Object.assign(this, { view, stage, graph });
    this.edges = stage.querySelector("#edges");
    this.nodes = stage.querySelector("#nodes");
    this.transform = d3.zoomIdentity; // zoom of the user
    this.drawn = d3.zoomIdentity; // zoom for which the canvases were drawn
    this.heavy = graph.numNodes + graph.numEdges > MAX_LIVE;
    this.names = shorten(graph.labels, 18);
    this.widths = []; // widths of names
  }

  /** Read the theme's colours. */
  readColours() {
    const style = getComputedStyle(document.documentElement);
    this.colour = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    const stops = ["below-2", "below-1", "zero", "above-1", "above-2"].map((name) => this.colour[name]);
    this.signs = d3.piecewise(d3.interpolateRgb, stops);
    this.ranks = d3.piecewise(d3.interpolateRgb, ["#440154", "#3b528b", "#21918c", "#5ec962", "#fde725"]); // viridis
    this.kindColours = ["source", "hidden", "movable", "sink", "sink"].map((name) => this.colour[name]);
  }

  /** Fit the canvases to the view. */
  resize() {
    this.width = Math.max(this.view.clientWidth, 50);
    this.height = Math.max(this.view.clientHeight, 50);
    this.ratio = Math.min(window.devicePixelRatio || 1, 2);
    for (const canvas of [this.edges, this.nodes]) {
      const [wide, high] = [this.width * (1 + 2 * OVERSCAN), this.height * (1 + 2 * OVERSCAN)];
      canvas.width = Math.round(wide * this.ratio);
      canvas.height = Math.round(high * this.ratio);
      canvas.style.width = `${wide}px`;
      canvas.style.height = `${high}px`;
      canvas.style.left = `${-this.width * OVERSCAN}px`;
      canvas.style.top = `${-this.height * OVERSCAN}px`;
    }
  }

  /** Set the layout, with coordinates from 0 to 1; `layers` is the number of columns. */
  setLayout(layout, layers) {
    const wide = Math.max(this.width - MARGIN.left - MARGIN.right, 10);
    const high = Math.max(this.height - MARGIN.top - MARGIN.bottom, 10);
    this.x = layout.x.map((x) => MARGIN.left + x * wide);
    this.y = layout.y.map((y) => MARGIN.top + y * high);
    this.bend = layout.bend.map((bend) => 2 * bend * high);
    const widest = this.graph.numNodes / layers;
    this.radius = Math.min(Math.max(0.26 * Math.min(wide / layers, high / widest), 2), 8);
    this.tree = null;
  }

  /** The node under a point of the view, or -1. */
  nodeAt(px, py) {
    this.tree ??= d3.quadtree(Array.from(this.x.keys()), (v) => this.x[v], (v) => this.y[v]);
    const [x, y] = this.transform.invert([px, py]);
    return this.tree.find(x, y, (this.nodeRadius() + 5) / this.transform.k) ?? -1;
  }

  /** Coordinates of a node in the view. */
  viewPosition(node) {
    return this.transform.apply([this.x[node], this.y[node]]);
  }

  /** The radius of a node in the view. */
  nodeRadius() {
    return Math.min(Math.max(this.radius * this.drawn.k ** 0.6, 1.6), 13);
  }

  /** Apply a zoom: a small graph is redrawn, a large one moved as an image until `redraw`. */
  applyZoom(transform, state) {
    this.transform = transform;
    if (!this.heavy) return this.redraw(state);
    cancelAnimationFrame(this.pendingFrame);
    const k = transform.k / this.drawn.k;
    const [x, y] = [transform.x - k * this.drawn.x, transform.y - k * this.drawn.y];
    this.stage.style.transform = `translate(${x}px, ${y}px) scale(${k})`;
  }

  /** Draw everything at the current zoom. */
  redraw(state) {
    this.drawn = this.transform;
    this.stage.style.transform = "";
    this.paintEdges(state);
    this.paintNodes(state);
  }

  begin(canvas) {
    const pen = canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    this.useViewPixels(pen);
    return pen;
  }

  /** Draw in pixels of the view from here on. */
  useViewPixels(pen) {
    const [left, top] = [this.width * OVERSCAN * this.ratio, this.height * OVERSCAN * this.ratio];
    pen.setTransform(this.ratio, 0, 0, this.ratio, left, top);
  }

  trace(path, e) {
    const [u, v] = [this.graph.source[e], this.graph.target[e]];
    path.moveTo(this.x[u], this.y[u]);
    if (u === v) return this.traceLoop(path, u);
    if (this.bend[e] === 0) return path.lineTo(this.x[v], this.y[v]);
    const [x, y] = [(this.x[u] + this.x[v]) / 2, (this.y[u] + this.y[v]) / 2];
    path.quadraticCurveTo(x, y + this.bend[e], this.x[v], this.y[v]);
  }

  /** An edge from a node to itself: a drop above it. */
  traceLoop(path, v) {
    const [x, y, size] = [this.x[v], this.y[v], 3.5 * this.radius];
    path.bezierCurveTo(x - size, y - size, x + size, y - size, x, y);
  }

  /** Draw the visible edges in BINS shades, the strong ones last; feedback edges are dashed. */
  paintEdges(state) {
    const half = (BINS - 1) / 2;
    const shades = Array.from({ length: 2 * BINS + 2 }, () => []); // those from BINS + 1 on are for feedback
    const box = this.drawnBox();
    for (let e = 0; e < this.graph.numEdges; e++) {
      if (state.visible[e] && this.touches(box, e)) {
        shades[this.bin(e) + (e < this.graph.firstFeedback ? 0 : BINS + 1)].push(e);
      }
    }
    const shade = (k) => Math.abs((k % (BINS + 1)) - half); // the last shade is for what isn't a number
    const order = shades.map((_, k) => k).sort((a, b) => shade(a) - shade(b));
    this.bundles = order.flatMap((k) =>
      bundles(shades[k]).map((edges) => ({ bin: k % (BINS + 1), dashed: k > BINS, edges })),
    );
    this.opacity = Math.min(Math.max(1500 / Math.max(state.count, 1), 0.05), 0.8);
    cancelAnimationFrame(this.pendingFrame);
    this.begin(this.edges);
    this.paintBundles();
  }

  /** Draw some of the edges, and the rest frame by frame, so that the page stays responsive. */
  paintBundles() {
    const pen = this.edges.getContext("2d");
    const half = (BINS - 1) / 2;
    pen.save();
    pen.globalAlpha = this.opacity;
    this.toGraph(pen);
    for (const { bin, dashed, edges } of this.bundles.splice(0, EDGES_PER_FRAME / BUNDLE)) {
      const shade = bin === BINS ? this.colour.mark : this.signs(bin / (BINS - 1));
      pen.strokeStyle = this.graph.weight ? shade : this.colour.edge;
      pen.lineWidth = (this.graph.weight ? 0.5 + (1.3 * Math.abs(bin - half)) / half : 0.7) / this.drawn.k;
      pen.setLineDash(dashed ? [4 / this.drawn.k, 3 / this.drawn.k] : []);
      const path = new Path2D();
      for (const e of edges) this.trace(path, e);
      pen.stroke(path);
    }
    pen.restore();
    if (this.bundles.length) this.pendingFrame = requestAnimationFrame(() => this.paintBundles());
  }

  /** The part of the drawing that is on the canvases: left, top, right, bottom. */
  drawnBox() {
    const [wide, high] = [this.width * OVERSCAN, this.height * OVERSCAN];
    return [...this.drawn.invert([-wide, -high]), ...this.drawn.invert([this.width + wide, this.height + high])];
  }

  /** Whether an edge may come into a box. */
  touches([left, top, right, bottom], e) {
    const [u, v, bend] = [this.graph.source[e], this.graph.target[e], this.bend[e] / 2];
    const [low, high] = this.y[u] < this.y[v] ? [this.y[u], this.y[v]] : [this.y[v], this.y[u]];
    const beside = Math.max(this.x[u], this.x[v]) < left || Math.min(this.x[u], this.x[v]) > right;
    return !beside && high + Math.max(bend, 0) >= top && low + Math.min(bend, 0) <= bottom;
  }

  toGraph(pen) {
    pen.translate(this.drawn.x, this.drawn.y);
    pen.scale(this.drawn.k, this.drawn.k);
  }

  /** The shade of an edge, from the most negative to the most positive weight. */
  bin(e) {
    const half = (BINS - 1) / 2;
    if (!this.graph.weight) return half;
    const weight = this.graph.weight[e];
    return Number.isNaN(weight) ? BINS : half + Math.round(half * this.normalize(weight, this.graph.weightLimit));
  }

  /** The shade of an edge of the selected node beside its others, so that the signs of weak ones are seen, too. */
  nearBin(e, largest) {
    const half = (BINS - 1) / 2;
    const weight = this.graph.weight[e];
    if (Number.isNaN(weight)) return BINS;
    if (weight === 0) return half;
    return half + Math.sign(weight) * Math.max(2, Math.round(half * Math.abs(this.normalize(weight, largest))));
  }

  /** A value relative to its limit, from -1 to 1. */
  normalize(value, limit) {
    return Math.min(Math.max(value / limit, -1), 1);
  }

  paintNodes(state) {
    const pen = this.begin(this.nodes);
    const { graph } = this;
    this.edges.classList.toggle("dim", state.selected >= 0 || state.step >= 0);
    if (state.step >= 0) this.paintStep(pen, state);
    if (state.selected >= 0) this.paintHighlight(pen, state);
    this.paintLayers(pen, state);
    const radius = this.nodeRadius();
    for (let v = 0; v < graph.numNodes; v++) {
      const [x, y] = this.onCanvas(v);
      if (!this.inside(x, y)) continue;
      pen.globalAlpha = this.isDim(v, state) ? 0.3 : 1;
      pen.fillStyle = this.fill(v, state);
      pen.strokeStyle = this.colour.outline;
      pen.lineWidth = Math.min(1, radius / 4);
      outline(pen, state.kind[v], x, y, radius);
      pen.fill();
      pen.stroke();
    }
    pen.globalAlpha = 1;
    if (state.matches) state.matches.forEach((v) => this.ring(pen, v, radius + 3, 2, this.colour.mark));
    if (state.selected >= 0) this.ring(pen, state.selected, radius + 3, 3, this.colour.ink);
    if (state.current >= 0) this.ring(pen, state.current, radius + 5, 2, this.colour.mark);
    this.paintLabels(pen, state, radius);
  }

  onCanvas(v) {
    return this.drawn.apply([this.x[v], this.y[v]]);
  }

  inside(x, y) {
    const [wide, high] = [this.width * OVERSCAN, this.height * OVERSCAN];
    return x > -wide && x < this.width + wide && y > -high && y < this.height + high;
  }

  /** Whether a node is dimmed: unrelated to the selected one, or not computed yet. */
  isDim(v, state) {
    if (state.selected >= 0 && !state.ancestors[v] && !state.descendants[v]) return true;
    return state.step >= 0 && state.column[v] > state.step;
  }

  /** Colour by kind, or as chosen; in a forward pass by activation, and blank where it isn't computed yet. */
  fill(v, state) {
    const colouring = this.graph.colourings[state.colouring];
    if (state.step < 0) return colouring ? this.shade(colouring, v) : this.kindColours[state.kind[v]];
    if (state.column[v] > state.step) return this.colour.paper;
    const { activation } = this.graph.samples[state.sample] ?? {};
    if (!activation) return this.colour.sink;
    if (Number.isNaN(activation[v])) return this.colour.mark;
    return this.signs((this.normalize(activation[v], this.graph.activationLimit) + 1) / 2);
  }

  /** The colour of a node by its class, or by the rank of its number. */
  shade({ codes, values, colours }, v) {
    if (codes) return colours[codes[v]] ?? this.colour.quiet;
    return Number.isNaN(values[v]) ? this.colour.quiet : this.ranks(values[v]);
  }

  ring(pen, v, radius, width, colour) {
    const [x, y] = this.onCanvas(v);
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.lineWidth = width;
    pen.strokeStyle = colour;
    pen.stroke();
  }

  /** The step of the forward pass, as the paper overlays it: the layer, the edges into it, where they come from. */
  paintStep(pen, state) {
    const { graph } = this;
    const path = new Path2D();
    let x = 0;
    let left = Infinity;
    for (let v = 0; v < graph.numNodes; v++) {
      if (state.column[v] !== state.step) continue;
      x = this.x[v];
      for (const e of graph.edgesAt(v, true)) {
        if (!state.visible[e]) continue;
        this.trace(path, e);
        left = Math.min(left, this.x[graph.source[e]]);
      }
    }
    const [from, to] = [Math.min(left, x), x].map((value) => this.drawn.applyX(value));
    const pad = this.nodeRadius() + 4;
    pen.fillStyle = this.colour.band;
    pen.fillRect(from - pad, -this.height, to - from + 2 * pad, 3 * this.height);
    pen.fillRect(to - pad, -this.height, 2 * pad, 3 * this.height);
    this.stroke(pen, path, 1.2, 0.85);
  }

  stroke(pen, path, width, opacity, colour = this.colour.lit) {
    pen.save();
    this.toGraph(pen);
    pen.globalAlpha = opacity;
    pen.strokeStyle = colour;
    pen.lineWidth = width / this.drawn.k;
    pen.stroke(path);
    pen.restore();
  }

  /**
   * Draw the edges among the ancestors and among the descendants of the selected node, the paler the more there are, and
   * its own ones boldest, in the colours of their signs; those of a hub thin and pale, the strong ones on top.
   */
  paintHighlight(pen, state) {
    const { source, target, weight, numEdges } = this.graph;
    const far = new Path2D();
    const near = [];
    let numFar = 0;
    for (let e = 0; e < numEdges; e++) {
      const [u, v] = [source[e], target[e]];
      const lit = (state.ancestors[u] && state.ancestors[v]) || (state.descendants[u] && state.descendants[v]);
      if (!lit || !state.visible[e]) continue;
      if (u === state.selected || v === state.selected) {
        near.push(e);
      } else {
        this.trace(far, e);
        numFar++;
      }
    }
    this.stroke(pen, far, 0.6, Math.min(0.45, Math.max(0.03, 450 / numFar)), this.colour.ink);
    const [width, opacity] = near.length > HUB ? [Math.max(0.5, 200 / near.length), 0.5] : [2, 1];
    const shades = Array.from({ length: BINS + 1 }, () => new Path2D());
    const largest = near.reduce((most, e) => Math.max(most, weight ? Math.abs(weight[e]) || 0 : 0), 0);
    for (const e of near) this.trace(shades[weight ? this.nearBin(e, largest) : 0], e);
    const half = (BINS - 1) / 2;
    const order = shades.map((_, bin) => bin).sort((a, b) => Math.abs(a - half) - Math.abs(b - half));
    for (const bin of order) {
      const colour = bin === BINS ? this.colour.mark : this.signs(bin / (BINS - 1));
      this.stroke(pen, shades[bin], width, opacity, weight ? colour : this.colour.lit);
    }
  }

  /** The numbers of the layers along the bottom, as many as fit. */
  paintLayers(pen, state) {
    const count = state.layers.length;
    const wide = (this.width - MARGIN.left - MARGIN.right) * this.drawn.k;
    const every = Math.max(1, Math.ceil((34 * Math.max(count - 1, 1)) / wide));
    pen.fillStyle = this.colour.quiet;
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    pen.textAlign = "center";
    for (let i = 0; i < count; i += every) {
      const x = MARGIN.left + (count > 1 ? i / (count - 1) : 0.5) * (this.width - MARGIN.left - MARGIN.right);
      pen.fillText(`${i === 0 ? "layer " : ""}${state.layers[i]}`, this.drawn.applyX(x), this.height - 8);
    }
  }

  /** Write names where they don't overlap: first those of the selected and current nodes, then by degree. */
  paintLabels(pen, state, radius) {
    const taken = new Set();
    const points = Array.from({ length: this.graph.numNodes }, (_, v) => this.onCanvas(v));
    const nodes = new Set(points.map(([x, y]) => cell(x, y)));
    pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    pen.textAlign = "center";
    pen.lineWidth = 3;
    pen.strokeStyle = this.colour.paper;
    pen.fillStyle = this.colour.ink;
    let written = 0;
    for (const v of [state.selected, state.current, ...this.graph.byDegree]) {
      if (v < 0 || written >= MAX_LABELS || this.isDim(v, state)) continue;
      const [x, y] = points[v];
      const label = this.names[v];
      const offset = radius + (v === state.selected || v === state.current ? 9 : 4);
      if (!this.inside(x, y)) continue;
      const width = (this.widths[v] ??= pen.measureText(label).width);
      const side = state.column[v] === 0 ? -1 : state.column[v] === state.layers.length - 1 ? 1 : 0;
      const beside = side !== 0 && offset + width < MARGIN.left; // before the first layer, or behind the last one
      const middle = beside ? x + side * (offset + width / 2) : this.clampCentre(x, width);
      const base = beside ? y + 4 : y - offset;
      const isFree = (key) => !taken.has(key) && (beside || key === cell(x, y) || !nodes.has(key));
      if (!claim(taken, isFree, middle, base - 4, width, beside ? 4 : 6)) continue;
      pen.strokeText(label, middle, base);
      pen.fillText(label, middle, base);
      written++;
    }
  }

  /** The centre of a name, moved so that the view's edge doesn't cut it. */
  clampCentre(x, width) {
    const isInside = x >= 0 && x <= this.width;
    return isInside ? Math.max(Math.min(x, this.width - width / 2 - 3), width / 2 + 3) : x;
  }
}

/** The outline of a node: a triangle for sources or inputs, circles for hidden nodes, a square for sinks or outputs. */
function outline(pen, kind, x, y, radius) {
  pen.beginPath();
  if (kind === 0 || kind === 4) {
    pen.moveTo(x + 1.2 * radius, y);
    pen.lineTo(x - 0.8 * radius, y - 1.1 * radius);
    pen.lineTo(x - 0.8 * radius, y + 1.1 * radius);
    pen.closePath();
  } else if (kind === 3) {
    pen.rect(x - 0.9 * radius, y - 0.9 * radius, 1.8 * radius, 1.8 * radius);
  } else {
    pen.arc(x, y, radius, 0, 2 * Math.PI);
  }
}

/** Split a list into lists of BUNDLE edges. */
function bundles(edges) {
  return Array.from({ length: Math.ceil(edges.length / BUNDLE) }, (_, i) => edges.slice(i * BUNDLE, (i + 1) * BUNDLE));
}

/** Shorten labels to `most` letters: cut at their end, or in the middle where that keeps them distinct. */
function shorten(labels, most) {
  const cut = (label, head) => {
    const letters = Array.from(label);
    if (letters.length <= most) return label;
    const tail = letters.slice(letters.length - (most - 1 - head)).join("");
    return `${letters.slice(0, head).join("").trimEnd()}…${tail.trimStart()}`;
  };
  const short = labels.map((label) => cut(label, most - 1));
  const times = new Map();
  for (const label of short) times.set(label, (times.get(label) ?? 0) + 1);
  return short.map((label, v) => (times.get(label) > 1 ? cut(labels[v], most >> 1) : label));
}

/** The grid cell of a point. */
function cell(x, y) {
  return `${Math.floor(x / 8)},${Math.floor(y / 12)}`;
}

/** Take the grid cells that a label covers, if all of them are free. */
function claim(taken, isFree, x, y, width, far) {
  const cells = [];
  for (let dx = -width / 2; dx < width / 2 + 8; dx += 8) {
    for (const dy of [-far, far]) cells.push(cell(x + Math.min(dx, width / 2), y + dy));
  }
  if (!cells.every(isFree)) return false;
  cells.forEach((key) => taken.add(key));
  return true;
}
