// Tabs, the address, and the start of the page.

const tabs = [...document.querySelectorAll("[role=tab]")];

function openTab(name) {
  const left = document.activeElement?.closest("[role=tabpanel]");
  for (const tab of tabs) {
    const isOpen = tab.dataset.tab === name;
    tab.setAttribute("aria-selected", isOpen);
    tab.tabIndex = isOpen ? 0 : -1;
    byId(`panel-${tab.dataset.tab}`).hidden = !isOpen;
  }
  tooltip.hidden = true;
  if (name === "timeline") { measure(); redraw(); }
  // The focused element is hidden now.
  if (left?.hidden) byId(name === "timeline" ? "canvas" : `panel-${name}`).focus();
  if (name === "table") fillAverages();
}

tabs.forEach((tab, at) => {
  tab.addEventListener("click", () => { openTab(tab.dataset.tab); writeFragment(); });
  tab.addEventListener("keydown", (press) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[press.key];
    if (to === undefined) return;
    press.preventDefault();
    const next = tabs[(to + tabs.length) % tabs.length];
    next.focus();
    next.click();
  });
});

/** Keeps the tab, the step and the selected event in the address, so that it can be shared. */
function writeFragment() {
  const open = tabs.find((tab) => tab.getAttribute("aria-selected") === "true")?.dataset.tab ?? "timeline";
  const fragment = new URLSearchParams({ ...(open !== "timeline" && { tab: open }), ...(steps.indexOf(step) > 0 && { step: steps.indexOf(step) }), ...(selected && { select: selected.index }) });
  if (`#${fragment}` !== (location.hash || "#")) history.replaceState(null, "", `#${fragment}`);
}

/** Parses a number of the address, which users may edit; null if invalid. */
const numberIn = (fragment, name) => /^\d+$/.test(fragment.get(name) ?? "") ? Number(fragment.get(name)) : null;
function readFragment() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const tab = tabs.some(({ dataset }) => dataset.tab === fragment.get("tab")) ? fragment.get("tab") : "timeline";
  const event = events[numberIn(fragment, "select")] ?? null, wanted = steps[numberIn(fragment, "step")] ?? steps[0] ?? null;
  if (wanted !== step) chooseStep(steps.indexOf(wanted));
  openTab(tab);
  select(event, event !== null, true);
  openTab(tab);
  writeFragment();
}
addEventListener("hashchange", readFragment);

document.title = `${profile.title} – Telegrad`;
byId("title").textContent = profile.title;
byId("facts").textContent = [time(profile.duration), counted(workers.length, "worker"), counted(events.length, "event"), ...(profile.failures > 0 ? [`${grouped(profile.failures)} not ok`] : [])].join(" · ");
/** Shows a note about missing data, so that the recording is not taken for complete. */
function showLack(list, headline) {
  if (list.length === 0) return;
  byId("missing").hidden = false;
  byId("missing").append(el("div", {}, el("strong", {}, `⚠ ${headline}`), el("ul", {}, list.map(([worker, why]) => el("li", {}, el("b", {}, worker), why)))));
}
const { missing } = profile;
const unknown = workers.filter(({ isKnown, name }) => !isKnown && !missing.some(([worker]) => worker === name));
const dropping = workers.filter(({ dropped }) => dropped > 0), dropped = dropping.reduce((sum, worker) => sum + worker.dropped, 0);
showLack(missing.map(([worker, why]) => [worker, `: ${why}`]), `Events of ${counted(missing.length, "worker")} are missing`);
showLack(unknown.map(({ name }) => [name, ""]), `The events of ${counted(unknown.length, "worker")} are unknown`);
showLack(dropping.map((worker) => [worker.name, `: ${grouped(worker.dropped)}`]), `${counted(dropped, "event")} ${dropped === 1 ? "was" : "were"} dropped: the buffer was full`);
showLack(profile.doubts.map((doubt) => ["", doubt]), "Some clocks could not be aligned");
readTheme();
measure();
layOut();
markCritical(false);
fillAverages();
fillTraffic();
fillCritical();
readFragment();
draw();
new ResizeObserver(() => { if (scroller.clientWidth > 0) { measure(); draw(); } }).observe(scroller);
onThemeChange(() => { readTheme(); overviewImage = null; redraw(); });
document.body.dataset.ready = "true";
