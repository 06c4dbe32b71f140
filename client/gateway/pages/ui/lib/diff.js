// What differs between two specs: by path, as a person would read it.
const LINES_MAX = 2_000;

// [{path, before, after}]; a part that is only in one of them is undefined in the other.
export function changes(before, after, path = "") {
  if (JSON.stringify(before) === JSON.stringify(after)) return [];
  const both = [before, after].every((one) => one && typeof one === "object" && !Array.isArray(one));
  if (!both) return [{ path: path || "all of it", before, after }];
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.flatMap((name) => changes(before[name], after[name], path ? `${path}.${name}` : name));
}

// The lines of two texts as [sign, line], sign being " ", "-" or "+"; of what is too long the whole
// of both.
export function lines(before, after) {
  const [old, fresh] = [before.split("\n"), after.split("\n")];
  if (old.length + fresh.length > LINES_MAX) return [...old.map((line) => ["-", line]), ...fresh.map((line) => ["+", line])];
  const common = Array.from({ length: old.length + 1 }, () => new Uint16Array(fresh.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = fresh.length - 1; j >= 0; j -= 1) {
      common[i][j] = old[i] === fresh[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const made = [];
  let [i, j] = [0, 0];
  while (i < old.length && j < fresh.length) {
    if (old[i] === fresh[j]) {
      made.push([" ", old[i]]);
      i += 1;
      j += 1;
    } else if (common[i + 1][j] >= common[i][j + 1]) made.push(["-", old[i++]]);
    else made.push(["+", fresh[j++]]);
  }
  return [...made, ...old.slice(i).map((line) => ["-", line]), ...fresh.slice(j).map((line) => ["+", line])];
}
