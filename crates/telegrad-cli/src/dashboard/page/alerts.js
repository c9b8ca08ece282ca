// Alerts for deadlocks and silent workers, and the update of the whole page.

const MOST_SILENT = 6;
function showAlerts() {
  const { cycles, silent, time } = latest, texts = cycles.map(String);
  const headline = texts.length === 0 ? "" : `Deadlock: ${texts.length === 1 ? "calls wait for each other in a cycle" : `${texts.length} cycles of calls that wait for each other`}, and none can proceed`;
  byId("cycles").hidden = texts.length === 0;
  write(byId("cycles").querySelector("h2"), headline);
  fill(byId("cycles").querySelector("ul"), texts, () => el("li"), (item, text) => {
    if (item.text === text) return;
    item.text = text;
    item.replaceChildren(...text.split("\n").map((line) => el("div", {}, withCode(line))));
  });
  announce("urgent", "cycles", headline);
  for (const [rank, worker] of workers) worker.silentSince = silent.includes(rank) ? worker.silentSince ?? time : null;
  const label = (rank) => nameOf(rank) === unnamed(rank) ? nameOf(rank) : `${nameOf(rank)} (rank ${rank})`;
  const headlineOfSilent = silent.length === 0 ? "" : `${silent.length === 1 ? "A worker does" : `${silent.length} workers do`} not answer: `;
  byId("silent").hidden = silent.length === 0;
  // The longest first, and not all of many: the table has all of them.
  const since = (rank) => time - (workers.get(rank)?.silentSince ?? time), first = [...silent].sort((a, b) => since(b) - since(a)).slice(0, MOST_SILENT);
  const parts = first.map((rank) => since(rank) >= 2 ? `${label(rank)} for ${span(Math.round(since(rank)))}` : label(rank));
  const text = parts.join(", ") + (silent.length > first.length ? `, and ${silent.length - first.length} more` : "");
  const box = byId("silent").lastElementChild;
  if (box.text !== headlineOfSilent + text) box.replaceChildren(el("b", {}, headlineOfSilent), text);
  box.text = headlineOfSilent + text;
  announce("urgent", "silent", headlineOfSilent + silent.slice(0, MOST_SILENT).map(label).join(", "));
  document.title = `${texts.length > 0 ? "⚠ Deadlock – " : silent.length > 0 ? `(${silent.length} silent) ` : ""}Telegrad dashboard`;
}
function show() {
  const { world, size } = latest;
  write(byId("total-workers"), size > world.size ? `${world.size} of ${size}` : String(world.size));
  write(byId("total-workers-label"), size === 1 ? "worker" : "workers");
  write(byId("total-calls"), perSecond(newest(totals.series, "made")));
  write(byId("total-bytes"), bytesPerSecond(newest(totals.series, "sent")));
  write(byId("total-inflight"), grouped(newest(totals.series, "out")));
  const [p50, p99] = ["p50", "p99"].map((metric) => newest(totals.series, metric));
  write(byId("total-latency"), isNumber(p50) ? `${span(p50)} / ${span(p99)}` : "–");
  showAlerts();
  pressLook(stacks());
  byId("which").hidden = workers.size <= FEW;
  showCharts();
  showWorkers();
  showMatrix();
  showCalls();
  showChains();
}

onThemeChange(() => { readTheme(); showCharts(); later("small", paintSmall); });
new ResizeObserver(() => { showCharts(); later("small", paintSmall); }).observe(byId("charts"));
readTheme();
show();
ask();
