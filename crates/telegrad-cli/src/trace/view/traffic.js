// Who called whom, and how much went there and back.

const { traffic } = profile;
/** The calls of a flow; where it has none, those that its bytes are answers to. */
function callsBetween({ from, to, calls }) {
  const [caller, callee] = calls > 0 ? [from, to] : [to, from];
  return { label: `calls ${nameOf(caller)} → ${nameOf(callee)}`, test: (event) => event.kind === "call" && event.worker === caller && event.peer === callee };
}
const callsIn = ({ calls }) => calls > 0 ? counted(calls, "call") : "answers";
const ranks = [...new Set([...workerByRank.keys(), ...traffic.flatMap(({ from, to }) => [from, to])])].sort((a, b) => a - b);
const addUp = (flows) => flows.reduce((all, flow) => ({ bytes: all.bytes + flow.bytes, calls: all.calls + flow.calls }), { bytes: 0, calls: 0 });
const allTraffic = addUp(traffic);

function fillTraffic() {
  const isMany = ranks.length > MOST_IN_TABLE;
  byId("no-traffic").hidden = traffic.length > 0;
  byId("traffic-card").hidden = traffic.length === 0;
  byId("traffic-bar").hidden = !isMany || traffic.length === 0;
  byId("traffic-note").textContent = traffic.length === 0 ? "" : isMany ? "The deeper the colour, the more went from the one of the row to the one of the column. Bars: all of a row, and all of a column."
    : "Bytes of requests and answers, and the number of calls. The deeper the colour, the larger the share of all bytes. Choose a pair to highlight its calls in the timeline.";
  byId("traffic-columns").classList.toggle("map", isMany);
  byId("traffic").hidden = isMany;
  byId("traffic-map").hidden = !isMany;
  byId("flows-section").hidden = traffic.length === 0;
  if (traffic.length === 0) return;
  if (isMany) { fillMap(); return; }
  fillMatrix();
  fillFlows("bytes");
}

/** Who called whom, in numbers. */
function fillMatrix() {
  const flows = new Map(traffic.map((flow) => [`${flow.from} ${flow.to}`, flow])), largest = traffic.reduce((most, flow) => Math.max(most, flow.bytes), 1);
  const cell = (looks, flow) => {
    if (!flow || flow.calls === 0 && flow.bytes === 0) return el("td", { class: `none ${looks}` }, "–");
    const title = `${percent(flow.bytes / (allTraffic.bytes || 1))} of all bytes`;
    return el("td", { class: looks, title, style: { "--part": flow.bytes / largest } }, el("b", {}, bytes(flow.bytes)), el("small", {}, callsIn(flow)));
  };
  byId("traffic").append(
    el("caption", { class: "unseen" }, "Bytes and calls from each worker, one per row, to each worker, one per column"),
    el("thead", {},
      el("tr", {}, el("th", { rowspan: 2, scope: "col" }, "from"), el("th", { colspan: ranks.length, scope: "colgroup" }, "to"), el("th", { rowspan: 2, scope: "col" }, "all")),
      el("tr", {}, ranks.map((rank) => el("th", { scope: "col" }, nameOf(rank))))),
    el("tbody", {}, ranks.map((rank) => el("tr", {}, el("th", { scope: "row" }, nameOf(rank)),
      ranks.map((other) => cell("", flows.get(`${rank} ${other}`))), cell("sum", addUp(traffic.filter(({ from }) => from === rank)))))),
    el("tfoot", {}, el("tr", {}, el("th", { scope: "row" }, "all"), ranks.map((rank) => cell("sum", addUp(traffic.filter(({ to }) => to === rank)))), cell("sum", allTraffic))));
}

/** The same of many, as a picture. */
function fillMap() {
  const said = (flow) => flow ? `${bytes(flow.bytes)}, ${callsIn(flow)}, ${percent(flow.bytes / (allTraffic.bytes || 1))} of all bytes` : "nothing";
  const map = heatMap(byId("traffic-map"), { describe: said, choose: (flow) => showHighlight(callsBetween(flow)) });
  const place = new Map(ranks.map((rank, at) => [rank, at]));
  const show = (what) => {
    const largest = traffic.reduce((most, flow) => Math.max(most, flow[what]), 1), some = traffic.filter((flow) => flow[what] > 0);
    // By the root, so that what is small can be seen beside what is large.
    map.show(ranks.map(nameOf), some.map((flow) => ({ ...flow, row: place.get(flow.from), column: place.get(flow.to), weight: flow[what], part: Math.sqrt(flow[what] / largest) })));
    byId("traffic-map").setAttribute("aria-label", `Who called whom: ${counted(some.length, "pair")} of ${ranks.length} workers. The arrow keys go from pair to pair, Enter highlights its calls.`);
    fillFlows(what);
  };
  choice(byId("traffic-kind"), [["bytes", "bytes"], ["calls", "calls"]], "bytes", show);
  show("bytes");
}

/** Who sent how much to whom, the most first. */
function fillFlows(what) {
  const ranked = traffic.filter((flow) => flow[what] > 0).sort((a, b) => b[what] - a[what]);
  paged(ranked, 18, byId("flows").tBodies[0], byId("flows-more"), (flow) => el("tr", {},
    el("td", {}, el("button", { class: "link", onclick: () => showHighlight(callsBetween(flow)) }, `${nameOf(flow.from)} → ${nameOf(flow.to)}`)),
    el("td", { class: "number" }, flow.calls > 0 ? grouped(flow.calls) : el("span", { class: "quiet" }, "answers")), el("td", { class: "number" }, bytes(flow.bytes)),
    el("td", { class: "number share", style: { "--part": flow[what] / ranked[0][what] } }, percent(flow[what] / (allTraffic[what] || 1)))));
}
