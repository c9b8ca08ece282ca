// Selects events, and emphasises the matches of a search.

function select(event, reveals = false, isAtOnce = undefined) {
  const panel = byId("details");
  const hadFocus = panel.contains(document.activeElement);
  selected = event;
  panel.scrollTop = 0;
  panel.replaceChildren(...(event ? eventDetails(event) : profileDetails()));
  if (hadFocus) panel.focus();
  byId("announce").textContent = event ? `${event.name}, ${event.kind} on ${nameOf(event.worker)}, ${time(duration(event))}, ${event.status}` : "";
  if (event && reveals) { openTab("timeline"); reveal(event, isAtOnce); }
  writeFragment();
  redraw();
}

/** Computes the emphasised events from the search, the highlight, and the critical path. */
function refilter() {
  const words = byId("search").value.trim().toLowerCase();
  const matches = (event) => {
    event.haystack ??= `${event.name}\n${event.key}\n${event.kind}\n${isBad(event) ? event.status : ""}`.toLowerCase();
    return event.haystack.includes(words);
  };
  const asks = words !== "" || highlight !== null;
  let found = 0;
  standsOut = asks || showsCritical ? new Uint8Array(events.length) : null;
  for (const lane of standsOut ? lanes : []) {
    lane.events.forEach((event, slot) => {
      const isFound = (words === "" || matches(event)) && (highlight === null || highlight.test(event));
      const stands = isFound && (!showsCritical || criticalEvents.has(event)) ? 1 : 0;
      found += isFound ? 1 : 0;
      standsOut[event.index] = stands;
      lane.matched[slot + 1] = lane.matched[slot] + stands;
    });
  }
  byId("found").textContent = !asks ? "" : found === 0 ? "no matches" : counted(found, "event");
  byId("previous").disabled = byId("next").disabled = !asks || found === 0;
  byId("chip").hidden = highlight === null;
  byId("chip-label").textContent = byId("chip-label").title = highlight?.label ?? "";
  overviewImage = null;
  redraw();
}

function setHighlight(to) {
  highlight = to;
  refilter();
}
function showHighlight(to) {
  setHighlight(to);
  openTab("timeline");
  writeFragment();
}
const alikeAnywhere = (name) => ({ label: name, test: (event) => plainName(event.key) === name });
const alike = (key, worker) => ({ label: `${key} on ${worker}`, test: (event) => event.key === key && nameOf(event.worker) === worker });

/** Selects the next or previous emphasised event. */
function selectMatch(direction) {
  let at = selected ? selected.index : direction > 0 ? -1 : 0;
  for (let tried = 0; standsOut && tried < events.length; tried++) {
    at = (at + direction + events.length) % events.length;
    if (standsOut[at]) { select(events[at], true); return; }
  }
}

/** Shows or hides the critical path of the selected step. */
function markCritical(marks) {
  showsCritical = marks && criticalPieces.length > 0;
  byId("show-critical").setAttribute("aria-pressed", showsCritical);
  byId("show-critical").disabled = criticalPieces.length === 0;
  refilter();
}
const toggleCritical = () => markCritical(!showsCritical);
