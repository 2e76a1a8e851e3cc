"use strict";

const ARRAYS = { i4: Int32Array, f4: Float32Array, u1: Uint8Array };

/**
 * An array out of base64 text.
 * @param {string} text
 * @param {"i4"|"f4"|"u1"} kind
 */
function unpack(text, kind) {
  return new ARRAYS[kind](Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
}

/** The network as Python sent it, with the lists that walking it needs. */
class Graph {
  constructor(scene) {
    this.labels = scene.labels;
    this.kinds = scene.kinds;
    this.numNodes = scene.labels.length;
    this.whole = scene.allNeurons;
    for (const name of ["inDegree", "outDegree", "input", "output", "source", "target"]) {
      this[name] = unpack(scene[name], "i4");
    }
    this.numEdges = this.source.length;
    this.bias = scene.bias && unpack(scene.bias, "f4");
    this.weight = scene.weight && unpack(scene.weight, "f4");
    this.weightLimit = scene.weightLimit;
    this.activationLimit = scene.activationLimit;
    this.samples = scene.samples.map(({ name, activation }) => ({ name, activation: unpack(activation, "f4") }));
    this.layerings = scene.layerings.map((lay) => ({
      name: lay.name,
      height: lay.height,
      layers: unpack(lay.layers, "i4"),
      column: unpack(lay.column, "i4"),
      place: unpack(lay.place, "f4"),
      kind: unpack(lay.kind, "u1"),
    }));
    this.into = lists(this.target, this.numNodes);
    this.outOf = lists(this.source, this.numNodes);
    this.bySize = this.weight ? sortedBy(this.numEdges, (e) => size(this.weight[e])) : null;
    this.byDegree = sortedBy(this.numNodes, (v) => -this.inDegree[v] - this.outDegree[v]);
  }

  /** Which edges are left when the weakest `share` of them is hidden, and the least size among those. */
  strong(share) {
    const kept = new Uint8Array(this.numEdges).fill(1);
    const hidden = this.bySize ? Math.round(share * this.numEdges) : 0;
    for (let i = 0; i < hidden; i++) kept[this.bySize[i]] = 0;
    const least = hidden < this.numEdges && this.weight ? size(this.weight[this.bySize[hidden]]) : null;
    return { kept, count: this.numEdges - hidden, least };
  }

  /**
   * The nodes from which one is reached (back), or which it reaches, along edges that are kept.
   * @returns {Uint8Array} 1 for each of them, and for the node itself
   */
  reach(node, back, kept) {
    const [edges, ends] = back ? [this.into, this.source] : [this.outOf, this.target];
    const seen = new Uint8Array(this.numNodes);
    const waiting = [node];
    seen[node] = 1;
    while (waiting.length) {
      const v = waiting.pop();
      for (let k = edges.start[v]; k < edges.start[v + 1]; k++) {
        const other = ends[edges.edge[k]];
        if (kept[edges.edge[k]] && !seen[other]) {
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

  /** The layer of a node, and how far up in it, as numbers from 0 to 1; and where edges bow to. */
  layout(index) {
    const lay = this.layerings[index];
    const last = Math.max(lay.layers.length - 1, 1);
    const x = Float32Array.from(lay.column, (column) => (lay.layers.length > 1 ? column / last : 0.5));
    const y = Float32Array.from(lay.place, (place) => 1 - place);
    const perLayer = this.numNodes / lay.layers.length;
    const bow = Float32Array.from(this.source, (u, e) => {
      const v = this.target[e];
      const off = (y[u] + y[v]) / 2 - 0.5;
      const side = Math.abs(off) > 1e-6 ? Math.sign(off) : lay.column[u] % 2 ? -1 : 1;
      return (side * (lay.column[v] - lay.column[u] - 1)) / (2 * last * perLayer);
    });
    return fitted({ x, y, bow }, this);
  }
}

/** The same layout, squeezed so that no bow reaches beyond 0 and 1. */
function fitted({ x, y, bow }, { source, target }) {
  let [low, high] = [0, 1];
  for (let e = 0; e < source.length; e++) {
    const middle = (y[source[e]] + y[target[e]]) / 2 + bow[e];
    [low, high] = [Math.min(low, middle), Math.max(high, middle)];
  }
  return { x, y: y.map((value) => (value - low) / (high - low)), bow: bow.map((value) => value / (high - low)) };
}

function size(weight) {
  return Number.isFinite(weight) ? Math.abs(weight) : 0;
}

function sortedBy(count, key) {
  const keys = Float64Array.from({ length: count }, (_, i) => key(i));
  return Uint32Array.from({ length: count }, (_, i) => i).sort((a, b) => keys[a] - keys[b] || a - b);
}

/** The edges of each node, one after the other: those of v are edge[start[v]] to edge[start[v + 1] - 1]. */
function lists(ends, numNodes) {
  const start = new Uint32Array(numNodes + 1);
  for (const v of ends) start[v + 1]++;
  for (let v = 0; v < numNodes; v++) start[v + 1] += start[v];
  const free = start.slice();
  const edge = new Uint32Array(ends.length);
  ends.forEach((v, e) => (edge[free[v]++] = e));
  return { edge, start };
}

/** A number for people: four digits that count. */
function words(number) {
  if (!Number.isFinite(number)) return String(number);
  return Number(number.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
}

/** A number of things, in words. */
function counted(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}
