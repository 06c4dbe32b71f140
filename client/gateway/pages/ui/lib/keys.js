// The keyboard: single letters, "g j" one after the other, and Ctrl-K. Letters are left alone while
// somebody types.
const BETWEEN_MS = 900;
const layers = [];
let first = null;
let until = 0;

const typing = (target) => target.closest?.("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable], dialog") != null;

// {"/": act, "g j": act, "mod+k": act}; the one that was put on last is asked first. Gives back what
// takes them off again.
export function onKeys(keys) {
  layers.push(keys);
  return () => layers.splice(layers.indexOf(keys), 1);
}

function find(name) {
  for (let at = layers.length - 1; at >= 0; at -= 1) if (layers[at][name]) return layers[at][name];
  return null;
}

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.isComposing) return;
    if (event.ctrlKey || event.metaKey) {
      const act = find(`mod+${event.key.toLowerCase()}`);
      if (act) {
        event.preventDefault();
        act(event);
      }
      return;
    }
    if (typing(event.target)) return;
    // Enter on a link or button is theirs.
    if (event.key === "Enter" && event.target.closest?.("a, button, summary")) return;
    const now = Date.now();
    const both = first && now < until ? find(`${first} ${event.key}`) : null;
    const act = both ?? find(event.key);
    first = both ? null : event.key;
    until = now + BETWEEN_MS;
    if (!act) return;
    event.preventDefault();
    act(event);
  });
}
