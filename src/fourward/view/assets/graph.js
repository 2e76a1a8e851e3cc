"use strict";

const ARRAYS = { i4: Int32Array, f4: Float32Array, u1: Uint8Array };

/**
 * Decode an array from base64.
 * @param {string} text
 * @param {"i4"|"f4"|"u1"} dtype
 */
function decode(text, dtype) {
  return new ARRAYS[dtype](Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
}

/** The network that Python encoded, with adjacency lists. */
class Graph {
  constructor(scene) {
    this.labels = scene.labels;
    this.kinds = scene.kinds;
    this.numNodes = scene.labels.length;
    this.complete = scene.allNeurons;
    for (const name of ["inDegree", "outDegree", "input", "output", "source", "target"]) {
      this[name] = decode(scene[name], "i4");
    }
    this.numEdges = this.source.length;
    this.firstFeedback = scene.firstFeedback; // edges from here on carry the value of the step before
    this.bias = scene.bias && decode(scene.bias, "f4");
    this.weight = scene.weight && decode(scene.weight, "f4");
    this.weightLimit = scene.weightLimit;
    this.changes = scene.changes; // how many edges grew and are gone; their weights are then 1 and -1
    this.activationLimit = scene.activationLimit;
    this.samples = scene.samples.map(({ name, activation }) => ({ name, activation: decode(activation, "f4") }));
    this.attributes = scene.attributes;
    this.colourings = scene.colourings.map((each) => ({
      ...each,
      codes: each.codes && decode(each.codes, "i4"),
      values: each.values && decode(each.values, "f4"),
    }));
    this.layerings = scene.layerings.map((lay) => ({
      name: lay.name,
      height: lay.height,
      layers: decode(lay.layers, "i4"),
      column: decode(lay.column, "i4"),
      y: decode(lay.y, "f4"),
      kind: decode(lay.kind, "u1"),
    }));
    this.into = adjacency(this.target, this.numNodes);
    this.outOf = adjacency(this.source, this.numNodes);
    this.byStrength = this.weight ? sortedBy(this.numEdges, (e) => strength(this.weight[e])) : null;
    this.byDegree = sortedBy(this.numNodes, (v) => -this.inDegree[v] - this.outDegree[v]);
  }

  /** Hide the weakest `fraction` of the edges: which are visible, how many, and the least strength among them. */
  hideWeak(fraction) {
    const visible = new Uint8Array(this.numEdges).fill(1);
    const hidden = this.byStrength ? Math.round(fraction * this.numEdges) : 0;
    for (let i = 0; i < hidden; i++) visible[this.byStrength[i]] = 0;
    const least = hidden < this.numEdges && this.weight ? strength(this.weight[this.byStrength[hidden]]) : null;
    return { visible, count: this.numEdges - hidden, least };
  }

  /**
   * The ancestors (backward) or descendants of a node, along visible edges.
   * @returns {Uint8Array} 1 for each of them, and for the node itself
   */
  reach(node, backward, visible) {
    const [edges, ends] = backward ? [this.into, this.source] : [this.outOf, this.target];
    const seen = new Uint8Array(this.numNodes);
    const waiting = [node];
    seen[node] = 1;
    while (waiting.length) {
      const v = waiting.pop();
      for (let k = edges.start[v]; k < edges.start[v + 1]; k++) {
        const other = ends[edges.edge[k]];
        if (visible[edges.edge[k]] && !seen[other]) {
          seen[other] = 1;
          waiting.push(other);
        }
      }
    }
    return seen;
  }

  /** The edges at a node: into it, or out of it. */
  edgesAt(node, into) {
    const { edge, start } = into ? this.into : this.outOf;
    return Array.from(edge.subarray(start[node], start[node + 1]));
  }

  /** Coordinates of the nodes from 0 to 1, and how far the middle of each edge bends from a straight line. */
  layout(index) {
    const lay = this.layerings[index];
    const last = Math.max(lay.layers.length - 1, 1);
    const x = Float32Array.from(lay.column, (column) => (lay.layers.length > 1 ? column / last : 0.5));
    const y = Float32Array.from(lay.y, (y) => 1 - y);
    const perLayer = this.numNodes / lay.layers.length;
    const bend = Float32Array.from(this.source, (u, e) => {
      const v = this.target[e];
      const off = (y[u] + y[v]) / 2 - 0.5;
      const side = Math.abs(off) > 1e-6 ? Math.sign(off) : lay.column[u] % 2 ? -1 : 1;
      const span = lay.column[v] - lay.column[u];
      return (side * (span > 0 ? span - 1 : 2 - span)) / (2 * last * perLayer);
    });
    return fit({ x, y, bend }, this);
  }
}

/** Squeeze a layout so that no bend reaches beyond 0 and 1. */
function fit({ x, y, bend }, { source, target }) {
  let [low, high] = [0, 1];
  for (let e = 0; e < source.length; e++) {
    const middle = (y[source[e]] + y[target[e]]) / 2 + bend[e];
    [low, high] = [Math.min(low, middle), Math.max(high, middle)];
  }
  return { x, y: y.map((value) => (value - low) / (high - low)), bend: bend.map((value) => value / (high - low)) };
}

function strength(weight) {
  return Number.isFinite(weight) ? Math.abs(weight) : 0;
}

function sortedBy(count, key) {
  const keys = Float64Array.from({ length: count }, (_, i) => key(i));
  return Uint32Array.from({ length: count }, (_, i) => i).sort((a, b) => keys[a] - keys[b] || a - b);
}

/** Edges grouped by node: those of v are edge[start[v]] to edge[start[v + 1] - 1]. */
function adjacency(ends, numNodes) {
  const start = new Uint32Array(numNodes + 1);
  for (const v of ends) start[v + 1]++;
  for (let v = 0; v < numNodes; v++) start[v + 1] += start[v];
  const next = start.slice();
  const edge = new Uint32Array(ends.length);
  ends.forEach((v, e) => (edge[next[v]++] = e));
  return { edge, start };
}

/** A number with four significant digits. */
function formatNumber(number) {
  if (!Number.isFinite(number)) return String(number);
  return Number(number.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
}

/** A number and a noun, in the plural unless it is 1. */
function pluralize(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}
