"use strict";

const MAX_LISTED = 100; // neighbours
const MAX_NAMES = 5000; // rows of the table of neurons

/** Create an element with text. Labels come from files, so they are set as text and never as markup. */
function element(tag, text = "", name = "") {
  const node = document.createElement(tag);
  node.textContent = text;
  if (name) node.className = name;
  return node;
}

/** The text beside the drawing: properties and neighbours of the selected neuron, and the search results. */
class Sidebar {
  /** @param {(node: number) => void} select called when a neuron of a list is clicked */
  constructor(graph, select) {
    Object.assign(this, { graph, select });
    this.details = document.getElementById("details");
    this.results = document.getElementById("results");
    this.resultCount = document.getElementById("result-count");
  }

  /** Properties of a neuron, as pairs of name and value. */
  properties(v, state) {
    const { graph } = this;
    const properties = [
      ["kind", this.kind(v, state)],
      ["layer", `${state.layers[state.column[v]]} of 0 to ${graph.layerings[state.layering].height - 1}`],
      ["edges in", graph.inDegree[v].toLocaleString("en")],
      ["edges out", graph.outDegree[v].toLocaleString("en")],
    ];
    if (graph.bias && !Number.isNaN(graph.bias[v])) properties.push(["bias", formatNumber(graph.bias[v])]);
    for (const [name, values] of Object.entries(graph.attributes)) {
      if (values[v] !== null) properties.push([name, typeof values[v] === "number" ? formatNumber(values[v]) : `${values[v]}`]);
    }
    const sample = graph.samples[state.sample];
    if (sample) properties.push([`activation, ${sample.name}`, formatNumber(sample.activation[v])]);
    return properties;
  }

  /** The kind of a neuron, and its index among the inputs or outputs. */
  kind(v, state) {
    const { input, output, kinds } = this.graph;
    const name = kinds[state.kind[v]];
    const roles = [input[v] >= 0 ? `input ${input[v]}` : "", output[v] >= 0 ? `output ${output[v]}` : ""];
    return [/^(in|out)put/.test(name) ? "" : name, ...roles].filter(Boolean).join(", ");
  }

  /** The properties in one sentence, for screen readers and the tooltip. */
  sentence(v, state, between = ", ") {
    const properties = this.properties(v, state).map(([name, value]) => `${name} ${value}`);
    return [this.graph.labels[v], ...properties].join(between);
  }

  /** Show the selected neuron, or how to select one. */
  showDetails(state) {
    const v = state.selected;
    if (v < 0) {
      this.details.replaceChildren(element("p", "Click a neuron to highlight its ancestors and descendants."));
      return;
    }
    const list = element("dl");
    const count = (set) => (set.reduce((sum, bit) => sum + bit, 0) - 1).toLocaleString("en");
    const related = ["ancestors", "descendants"].map((name) => [name, count(state[name])]);
    for (const [name, value] of [...this.properties(v, state), ...related]) {
      list.append(element("dt", name), element("dd", value));
    }
    const parts = [element("h2", this.graph.labels[v]), list];
    if (state.partial) parts.push(element("p", state.partial));
    for (const into of [true, false]) parts.push(...this.neighbours(v, into, state));
    this.details.replaceChildren(...parts);
  }

  /** List the neighbours of a neuron, those with the strongest edges first. */
  neighbours(v, into, state) {
    const { graph } = this;
    const edges = graph.edgesAt(v, into).filter((e) => state.visible[e]);
    if (graph.weight) edges.sort((a, b) => strength(graph.weight[b]) - strength(graph.weight[a]));
    const rows = edges.slice(0, MAX_LISTED).map((e) => {
      const other = into ? graph.source[e] : graph.target[e];
      return this.row(other, graph.weight ? this.value(graph.weight[e]) : "");
    });
    const list = element("ul");
    list.append(...rows);
    const limit = edges.length > MAX_LISTED ? `, the first ${MAX_LISTED}` : "";
    return [element("h2", `${into ? "Receives from" : "Sends to"} ${edges.length.toLocaleString("en")}${limit}`), list];
  }

  /** The weight of an edge, or what became of it. */
  value(weight) {
    if (!this.graph.changes) return formatNumber(weight);
    return weight > 0 ? "grown" : weight < 0 ? "gone" : "";
  }

  row(v, value) {
    const button = element("button");
    button.type = "button";
    button.append(element("span", this.graph.labels[v]), element("span", value));
    button.addEventListener("click", () => this.select(v));
    const item = element("li");
    item.append(button);
    return item;
  }

  /** List the neurons whose label contains the query, or all of them, by layer; returns them. */
  search(query, state) {
    const { graph } = this;
    const text = query.trim().toLowerCase();
    const hits = [];
    for (let v = 0; v < graph.numNodes; v++) if (graph.labels[v].toLowerCase().includes(text)) hits.push(v);
    const exact = (v) => (text && graph.labels[v].toLowerCase() === text ? 0 : 1);
    hits.sort((a, b) => exact(a) - exact(b) || state.column[a] - state.column[b] || a - b);
    const rows = hits.slice(0, MAX_NAMES).map((v) => this.row(v, `layer ${state.layers[state.column[v]]}`));
    this.results.replaceChildren(...rows);
    const limit = hits.length > MAX_NAMES ? `, the first ${MAX_NAMES} by layer` : "";
    const scope = graph.complete ? " found" : " found among those shown";
    this.resultCount.textContent = `${pluralize(hits.length, "neuron")}${text ? scope : ""}${limit}`;
    return hits;
  }
}

/** Explain the shapes and colours. */
function showLegend(box, graph, painter, state) {
  const keys = graph.kinds.map((name, kind) => {
    const item = element("span");
    const canvas = element("canvas");
    canvas.width = canvas.height = 36;
    canvas.style.width = canvas.style.height = "18px";
    const pen = canvas.getContext("2d");
    outline(pen, kind, 18, 18, 11);
    pen.fillStyle = state.step < 0 ? painter.kindColours[kind] : painter.colour.paper;
    pen.strokeStyle = painter.colour.ink;
    pen.lineWidth = 2;
    pen.fill();
    pen.stroke();
    const count = state.kind.reduce((sum, each) => sum + (each === kind), 0);
    item.append(canvas, ` ${name} (${count.toLocaleString("en")})`);
    return item;
  });
  const colouring = graph.colourings[state.colouring];
  if (colouring && state.step < 0) keys.push(...colouringKeys(colouring, painter));
  if (graph.changes) keys.push(...changeKeys(graph.changes, painter));
  else if (graph.weight) keys.push(scale("weight", [graph.weight], graph.weightLimit, painter));
  const activations = graph.samples.map(({ activation }) => activation);
  if (state.step >= 0 && activations.length) {
    keys.push(scale("activation", activations, graph.activationLimit, painter));
  }
  box.replaceChildren(...keys);
}

/** Explain the colours of edges that grew and are gone. */
function changeKeys([grown, gone], painter) {
  const names = [[1, `grown (${grown.toLocaleString("en")})`], [0, `gone, dashed (${gone.toLocaleString("en")})`]];
  return names.map(([shade, name]) => {
    const item = element("span");
    item.append(patch(painter.signs(shade)), ` ${name}`);
    return item;
  });
}

/** Explain the colours of classes, or of numbers by rank. */
function colouringKeys({ name, codes, names, colours, quantiles }, painter) {
  if (codes) {
    return names.map((each, code) => {
      const item = element("span");
      item.append(patch(colours[code] ?? painter.colour.quiet), ` ${each}`);
      return item;
    });
  }
  const item = element("span", `${name} by rank: `);
  quantiles.forEach((value, k) => item.append(patch(painter.ranks(k / (quantiles.length - 1))), ` ${formatNumber(value)} `));
  return [item];
}

/** A colour bar with its limits; it starts at 0 where nothing is negative. */
function scale(name, arrays, limit, painter) {
  const low = arrays.some((values) => values.some((value) => value < 0)) ? -limit : 0;
  const canvas = element("canvas");
  canvas.width = 90;
  canvas.height = 10;
  const pen = canvas.getContext("2d");
  for (let i = 0; i < 90; i++) {
    pen.fillStyle = painter.signs(0.5 + (low + ((limit - low) * i) / 89) / limit / 2);
    pen.fillRect(i, 0, 1, 10);
  }
  const item = element("span");
  item.append(`${name} ${low < 0 ? `≤ ${formatNumber(low)}` : "0"} `, canvas, ` ≥ ${formatNumber(limit)}`);
  if (arrays.some((values) => values.some(Number.isNaN))) item.append(", not a number ", patch(painter.colour.mark));
  return item;
}

function patch(colour) {
  const canvas = element("canvas");
  canvas.width = canvas.height = 10;
  const pen = canvas.getContext("2d");
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 10, 10);
  return canvas;
}
