// Graphs of jobs: how each stands, and where it is drawn: in layers from left to right, every link forwards.
//
// Four steps: each job's layer is its longest way from a start; a link over several layers gets a
// bend in each between; layers are ordered by the middle of their neighbours, back and forth, and
// the order with the fewest crossings is kept; then each gets the place nearest to its neighbours
// that its layer has room for. All steps are bounded, and the same graph is always drawn the same.

import { plain } from "./format.js";

export const NODES_MAX = 300;
export const LINKS_MAX = 1_200;
const BENDS_MAX = 2_500;
const SWEEPS = 8;
const STEPS = 6;

// The jobs nearest to one of them, as many as are drawn. `jobs` come upstream first.
export function nearest(jobs, links, around, most = NODES_MAX) {
  if (jobs.length <= most) return { jobs, links: links.slice(0, LINKS_MAX) };
  const beside = new Map(jobs.map((job) => [job, []]));
  for (const { from, to } of links) {
    beside.get(from)?.push(to);
    beside.get(to)?.push(from);
  }
  const chosen = new Set([beside.has(around) ? around : jobs[0]]);
  for (const job of chosen) {
    for (const other of beside.get(job)) {
      if (chosen.size < most) chosen.add(other);
    }
  }
  for (const job of jobs) if (chosen.size < most) chosen.add(job);
  const kept = links.filter(({ from, to }) => chosen.has(from) && chosen.has(to));
  return { jobs: jobs.filter((job) => chosen.has(job)), links: kept.slice(0, LINKS_MAX) };
}

// `sizes`: width and height of a job, and the gaps between layers and between jobs of one layer.
export function layout(jobs, links, sizes) {
  if (!jobs.length) return { boxes: [], paths: [], width: 0, height: 0 };
  const graph = layered(jobs, links);
  order(graph);
  place(graph, sizes);
  return drawn(graph, sizes);
}

function layered(jobs, links) {
  const nodes = new Map(jobs.map((job, rank) => [job, { job, rank, layer: 0, up: [], down: [] }]));
  const known = links.filter(({ from, to }) => nodes.has(from) && nodes.has(to) && from !== to);
  const below = new Map(jobs.map((job) => [job, []]));
  const above = new Map(jobs.map((job) => [job, 0]));
  for (const { from, to } of known) {
    below.get(from).push(to);
    above.set(to, above.get(to) + 1);
  }
  const ready = jobs.filter((job) => above.get(job) === 0);
  for (const job of ready) {
    for (const to of below.get(job)) {
      nodes.get(to).layer = Math.max(nodes.get(to).layer, nodes.get(job).layer + 1);
      above.set(to, above.get(to) - 1);
      if (above.get(to) === 0) ready.push(to);
    }
  }
  // A start stands just before what it leads to.
  const starts = new Set(known.map((link) => link.from));
  for (const { to } of known) starts.delete(to);
  for (const job of starts) {
    const next = below.get(job).map((to) => nodes.get(to).layer);
    nodes.get(job).layer = Math.min(...next) - 1;
  }
  return bent([...nodes.values()], nodes, known);
}

function bent(all, nodes, links) {
  let bends = 0;
  const ways = [];
  for (const link of links) {
    const [start, end] = [nodes.get(link.from), nodes.get(link.to)];
    const way = [start];
    const between = end.layer - start.layer - 1;
    if (between > 0 && bends + between <= BENDS_MAX) {
      bends += between;
      for (let layer = start.layer + 1; layer < end.layer; layer += 1) {
        const bend = { job: "", rank: start.rank, layer, up: [], down: [] };
        all.push(bend);
        way.push(bend);
      }
    }
    way.push(end);
    for (let at = 1; at < way.length; at += 1) {
      way[at - 1].down.push(way[at]);
      way[at].up.push(way[at - 1]);
    }
    ways.push({ link, way });
  }
  const layers = [];
  for (const node of all) (layers[node.layer] ??= []).push(node);
  for (let at = 0; at < layers.length; at += 1) layers[at] ??= [];
  return { layers, ways };
}

function numbered(layers) {
  for (const layer of layers) layer.forEach((node, at) => (node.at = at));
}

function order({ layers }) {
  for (const layer of layers) layer.sort((one, other) => one.rank - other.rank);
  numbered(layers);
  let best = layers.map((layer) => [...layer]);
  let fewest = crossings(layers);
  for (let sweep = 0; sweep < SWEEPS && fewest > 0; sweep += 1) {
    const side = sweep % 2 ? "down" : "up";
    for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
      const wanted = new Map(layer.map((node) => [node, middle(node[side], "at", node.at)]));
      layer.sort((one, other) => wanted.get(one) - wanted.get(other) || one.at - other.at);
      layer.forEach((node, at) => (node.at = at));
    }
    const now = crossings(layers);
    if (now < fewest) [fewest, best] = [now, layers.map((layer) => [...layer])];
  }
  best.forEach((layer, at) => (layers[at] = layer));
  numbered(layers);
}

// The mean of the neighbours' places; of none its own.
function middle(beside, field, own) {
  if (!beside.length) return own;
  return beside.reduce((sum, node) => sum + node[field], 0) / beside.length;
}

// How many links cross, over all pairs of layers: inversions, counted with a binary indexed tree.
export function crossings(layers) {
  let total = 0;
  for (const layer of layers) {
    const ends = [];
    for (const node of layer) {
      ends.push(...node.down.map((next) => next.at).sort((one, other) => one - other));
    }
    const size = Math.max(0, ...ends) + 1;
    const tree = new Array(size + 1).fill(0);
    ends.forEach((end, seen) => {
      let before = 0;
      for (let at = end + 1; at > 0; at -= at & -at) before += tree[at];
      total += seen - before;
      for (let at = end + 1; at <= size; at += at & -at) tree[at] += 1;
    });
  }
  return total;
}

function place({ layers }, { height, gap }) {
  const room = (node) => (node.job ? height + gap : gap * 1.5);
  for (const layer of layers) {
    let y = 0;
    for (const node of layer) {
      node.y = y + room(node) / 2;
      y += room(node);
    }
  }
  for (let step = 0; step < STEPS; step += 1) {
    const side = step % 2 ? "down" : "up";
    for (const layer of step % 2 ? [...layers].reverse() : layers) {
      settle(layer, room, side);
    }
  }
  const top = Math.min(...layers.flat().map((node) => node.y - room(node) / 2));
  for (const node of layers.flat()) node.y -= top;
}

// The nearest places to those wanted that keep the order and the gaps (pool adjacent violators).
function settle(layer, room, side) {
  let behind = 0;
  const blocks = [];
  for (const node of layer) {
    behind += room(node) / 2;
    node.behind = behind;
    behind += room(node) / 2;
    let block = { sum: middle(node[side], "y", node.y) - node.behind, nodes: [node] };
    while (blocks.length && mean(blocks.at(-1)) > mean(block)) {
      const before = blocks.pop();
      block = { sum: before.sum + block.sum, nodes: [...before.nodes, ...block.nodes] };
    }
    blocks.push(block);
  }
  for (const block of blocks) {
    for (const node of block.nodes) node.y = mean(block) + node.behind;
  }
}

function mean(block) {
  return block.sum / block.nodes.length;
}

function drawn({ layers, ways }, { width, height, across, gap }) {
  const left = (node) => node.layer * (width + across);
  const boxes = layers.flat().filter((node) => node.job)
    .map((node) => ({ job: node.job, x: left(node), y: round(node.y - height / 2) }));
  const paths = ways.map(({ link, way }) => {
    const points = way.flatMap((node, at) => {
      const [start, end] = [[left(node), node.y], [left(node) + width, node.y]];
      if (at === 0) return [end];
      return at === way.length - 1 ? [start] : [start, end];
    });
    return { ...link, path: curve(points) };
  });
  const deepest = Math.max(...layers.flat().map((node) => node.y));
  return {
    boxes,
    paths,
    width: layers.length * (width + across) - across,
    height: round(deepest + (height + gap) / 2),
  };
}

function curve(points) {
  const [[x, y], ...rest] = points;
  let path = `M${x} ${round(y)}`;
  let [fromX, fromY] = [x, y];
  for (const [toX, toY] of rest) {
    const half = round((fromX + toX) / 2);
    path += Math.abs(fromY - toY) < 0.5
      ? `L${toX} ${round(toY)}`
      : `C${half} ${round(fromY)} ${half} ${round(toY)} ${toX} ${round(toY)}`;
    [fromX, fromY] = [toX, toY];
  }
  return path;
}

function round(number) {
  return Math.round(number * 10) / 10;
}

// The state of a step: that of its run, else whether it waits or cannot run.
export function stepState(step) {
  if (!step) return "NOT_REACHED";
  if (step.run && step.runState) return plain(step.runState);
  return plain(step.state);
}

const FINAL = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);
const MEETS = {
  CONDITION_SUCCESS: (state) => state === "SUCCEEDED",
  CONDITION_UNSPECIFIED: (state) => state === "SUCCEEDED",
  CONDITION_FAILURE: (state) => state === "FAILED",
  CONDITION_ANY_END: (state) => FINAL.has(state),
};

// Whether what a link asks for came true: "met", "unmet", or "open".
export function linkState(condition, upstream) {
  if ((MEETS[condition] ?? MEETS.CONDITION_SUCCESS)(upstream)) return "met";
  return FINAL.has(upstream) || upstream === "SKIPPED" || upstream === "CANNOT_RUN" ? "unmet" : "open";
}

export const LINK_WORDS = { CONDITION_FAILURE: "when it fails", CONDITION_ANY_END: "when it ends, however" };

// How many steps are in each state, those that need a look first.
const ORDER = ["FAILED", "CANNOT_RUN", "RETRYING", "RUNNING", "PENDING", "WAITING", "CANCELLED", "SKIPPED", "SUCCEEDED"];
export function stepCounts(steps = []) {
  const counts = new Map(ORDER.map((state) => [state, 0]));
  for (const step of steps) counts.set(stepState(step), (counts.get(stepState(step)) ?? 0) + 1);
  return [...counts].filter(([, count]) => count);
}
export const gravity = (state) => (ORDER.includes(state) ? ORDER.length - ORDER.indexOf(state) : 0);
