// How things are put into words; and lists that are shown in pieces.

/** Microseconds for people. */
const time = (micros) => span(micros / 1e6);
const percent = (share) => share > 0 && share < 0.0005 ? "<\u00a00.1\u00a0%" : `${(100 * share).toFixed(1)}\u00a0%`;
/** A moment, to the nanosecond. */
const moment = (micros) => `${(micros / 1e3).toFixed(6)} ms`;
function pushTo(map, key, value) {
  const list = map.get(key);
  if (list) list.push(value); else map.set(key, [value]);
}

/** What was done, and for which calls of other workers. */
function splitName(name) {
  const parts = name.split("#remote_op: ");
  return { what: parts.pop(), calls: parts };
}
/** A name for people; a long one with the places where a line may break: between its parts, and not within. */
function breakable(name) {
  const text = name.replaceAll(" -> ", "\u00a0→\u00a0"), parts = text.length < 32 ? [text] : text.split(/(?<=::|#)|(?=\()/);
  return parts.flatMap((part, at) => at > 0 ? [el("wbr"), part] : [part]);
}
/** A name without who called whom. */
const plainNames = new Map();
function plainName(name) {
  if (!plainNames.has(name)) plainNames.set(name, name.replace(/\([^()]* -> [^()]*\)/g, ""));
  return plainNames.get(name);
}

/** Shows a list in pieces: `more` gets a button for as long as there is a rest. */
function paged(items, size, into, more, render) {
  let from = 0;
  const show = (press) => {
    into.append(...items.slice(from, from + size).map((item, index) => render(item, from + index)));
    from += size;
    const rest = items.length - from;
    more.replaceChildren(...(rest > 0 ? [el("button", { class: "button more", onclick: show }, `Show more (${grouped(rest)} left)`)] : []));
    if (press) more.firstElementChild?.focus();
  };
  into.replaceChildren();
  show();
}
