"use strict";

const MOST_LISTED = 100;

/** An element with text in it; labels come from files, so they are set as text and never as markup. */
function element(tag, text = "", name = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

/** The words beside the drawing: what is known of a neuron, its neighbours, and the list of those found. */
class Panel {
  /** @param {(node: number) => void} choose called when a neuron of a list is pressed */
  constructor(graph, choose) {
    Object.assign(this, { graph, choose });
    this.details = document.getElementById("details");
    this.found = document.getElementById("found");
    this.foundWords = document.getElementById("found-words");
  }

  /** What is known of a neuron, as pairs of name and value. */
  facts(v, state) {
    const { graph } = this;
    const facts = [
      ["kind", this.kind(v, state)],
      ["layer", `${state.layers[state.column[v]]} of 0 to ${graph.layerings[state.layering].height - 1}`],
      ["edges in", graph.inDegree[v].toLocaleString("en")],
      ["edges out", graph.outDegree[v].toLocaleString("en")],
    ];
    if (graph.bias && !Number.isNaN(graph.bias[v])) facts.push(["bias", words(graph.bias[v])]);
    const sample = graph.samples[state.sample];
    if (sample) facts.push([`activation, ${sample.name}`, words(sample.activation[v])]);
    return facts;
  }

  /** The kind of a neuron, and which input or output it is; that alone says enough where the kinds are these. */
  kind(v, state) {
    const { input, output, kinds } = this.graph;
    const name = kinds[state.kind[v]];
    const roles = [input[v] >= 0 ? `input ${input[v]}` : "", output[v] >= 0 ? `output ${output[v]}` : ""];
    return [/^(in|out)put/.test(name) ? "" : name, ...roles].filter(Boolean).join(", ");
  }

  /** The same in one sentence, for a screen reader and for the tip. */
  sentence(v, state, between = ", ") {
    const facts = this.facts(v, state).map(([name, value]) => `${name} ${value}`);
    return [this.graph.labels[v], ...facts].join(between);
  }

  /** Show the chosen neuron, or how to choose one. */
  showDetails(state) {
    const v = state.selected;
    if (v < 0) {
      this.details.replaceChildren(element("p", "Click a neuron to light up its ancestors and descendants."));
      return;
    }
    const list = element("dl");
    const count = (set) => (set.reduce((sum, bit) => sum + bit, 0) - 1).toLocaleString("en");
    const related = ["ancestors", "descendants"].map((name) => [name, count(state[name])]);
    for (const [name, value] of [...this.facts(v, state), ...related]) {
      list.append(element("dt", name), element("dd", value));
    }
    const parts = [element("h2", this.graph.labels[v]), list];
    if (state.partial) parts.push(element("p", state.partial));
    for (const into of [true, false]) parts.push(...this.neighbours(v, into, state));
    this.details.replaceChildren(...parts);
  }

  /** A list of where edges come from or lead to, the strongest first. */
  neighbours(v, into, state) {
    const { graph } = this;
    const edges = graph.edgesAt(v, into).filter((e) => state.kept[e]);
    if (graph.weight) edges.sort((a, b) => size(graph.weight[b]) - size(graph.weight[a]));
    const rows = edges.slice(0, MOST_LISTED).map((e) => {
      const other = into ? graph.source[e] : graph.target[e];
      return this.row(other, graph.weight ? words(graph.weight[e]) : "");
    });
    const list = element("ul");
    list.append(...rows);
    const more = edges.length > MOST_LISTED ? `, the first ${MOST_LISTED}` : "";
    return [element("h2", `${into ? "Receives from" : "Sends to"} ${edges.length.toLocaleString("en")}${more}`), list];
  }

  row(v, value) {
    const button = element("button");
    button.type = "button";
    button.append(element("span", this.graph.labels[v]), element("span", value));
    button.addEventListener("click", () => this.choose(v));
    const item = element("li");
    item.append(button);
    return item;
  }

  /** The neurons whose label holds the query, or all of them, by layer; returns them. */
  search(query, state) {
    const { graph } = this;
    const wanted = query.trim().toLowerCase();
    const hits = [];
    for (let v = 0; v < graph.numNodes; v++) if (graph.labels[v].toLowerCase().includes(wanted)) hits.push(v);
    const exact = (v) => (wanted && graph.labels[v].toLowerCase() === wanted ? 0 : 1);
    hits.sort((a, b) => exact(a) - exact(b) || state.column[a] - state.column[b] || a - b);
    const rows = hits.slice(0, MOST_LISTED).map((v) => this.row(v, `layer ${state.layers[state.column[v]]}`));
    this.found.replaceChildren(...rows);
    const more = hits.length > MOST_LISTED ? `, the first ${MOST_LISTED} by layer` : "";
    const where = graph.whole ? " found" : " found among those shown";
    this.foundWords.textContent = `${counted(hits.length, "neuron")}${wanted ? where : ""}${more}`;
    return hits;
  }
}

/** What the shapes and colours mean. */
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
    const count = state.kind.reduce((sum, one) => sum + (one === kind), 0);
    item.append(canvas, ` ${name} (${count.toLocaleString("en")})`);
    return item;
  });
  if (graph.weight) keys.push(scale("weight", [graph.weight], graph.weightLimit, painter));
  const activations = graph.samples.map(({ activation }) => activation);
  if (state.step >= 0 && activations.length) {
    keys.push(scale("activation", activations, graph.activationLimit, painter));
  }
  box.replaceChildren(...keys);
}

/** A bar of colours with its two ends written beside it; it begins at 0 where nothing is less. */
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
  item.append(`${name} ${low < 0 ? `≤ ${words(low)}` : "0"} `, canvas, ` ≥ ${words(limit)}`);
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
