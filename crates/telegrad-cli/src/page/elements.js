// Shared by all pages: elements, buttons, canvases, and the tooltip.

const byId = (id) => document.getElementById(id);

/** Sets the attributes and children of an element. Text is added as text nodes only, so that names cannot become markup. */
function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [property, of] of Object.entries(value)) element.style.setProperty(property, of);
    else if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null));
  return element;
}
const el = (tag, attributes = {}, ...children) => build(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** A row of buttons of which one is pressed. Returns a function that presses one without calling `choose`. */
function choice(group, options, chosen, choose) {
  const press = (value) => buttons.forEach((button, at) => button.setAttribute("aria-pressed", options[at][0] === value));
  const buttons = options.map(([value, label]) => el("button", { class: "button", "data-label": label, onclick() { press(value); choose(value); } }, label));
  press(chosen);
  group.append(...buttons);
  return press;
}

/** The current values of named colours of the style sheet, and the font. */
function coloursOf(names) {
  const style = getComputedStyle(document.documentElement);
  const colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  return { ...colours, font: `11.5px ${getComputedStyle(document.body).fontFamily}` };
}
/** Calls `change` when the colour scheme changes. */
const onThemeChange = (change) => matchMedia("(prefers-color-scheme: dark)").addEventListener("change", change);

/** Sizes a canvas to the pixels of the screen, clears it, and returns its context. */
function penOf(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1, [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

/** Fills a rectangle. */
function block(pen, colour, x, y, width, height, alpha = 1) {
  pen.globalAlpha = alpha;
  pen.fillStyle = colour;
  pen.fillRect(x, y, width, height);
  pen.globalAlpha = 1;
}

/** Schedules one paint for the next frame. */
const due = new Set();
function later(name, paint) {
  if (!due.has(name)) requestAnimationFrame(() => { due.delete(name); paint(); });
  due.add(name);
}

const tooltip = byId("tooltip");
/** Shows the tooltip beside a point of the window. */
function showTooltip(x, y, ...content) {
  tooltip.replaceChildren(...content);
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  tooltip.style.left = `${x + 16 + width > innerWidth ? Math.max(x - 12 - width, 4) : x + 16}px`;
  tooltip.style.top = `${y + 18 + height > innerHeight ? Math.max(y - 10 - height, 4) : y + 18}px`;
}
