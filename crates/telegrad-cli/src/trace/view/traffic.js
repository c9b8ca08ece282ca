// Calls and bytes between workers.

const { traffic } = profile;
/** The calls of a flow; without calls, those that its bytes are replies to. */
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
  byId("traffic-note").textContent = traffic.length === 0 ? "" : isMany ? "Deeper colours: more traffic from the worker of the row to the worker of the column. Bars: sums of rows and columns."
    : "Bytes of requests and replies, and number of calls. Deeper colours: a larger share of all bytes. Choose a pair to highlight its calls in the timeline.";
  byId("traffic-columns").classList.toggle("map", isMany);
  byId("traffic").hidden = isMany;
  byId("traffic-map").hidden = !isMany;
  byId("flows-section").hidden = traffic.length === 0;
  if (traffic.length === 0) return;
  if (isMany) { fillMap(); return; }
  fillMatrix();
  fillFlows("bytes");
}

/** The table of traffic by pair. */
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

/** The heat map of traffic, for many workers. */
function fillMap() {
  const describe = (flow) => flow ? `${bytes(flow.bytes)}, ${callsIn(flow)}, ${percent(flow.bytes / (allTraffic.bytes || 1))} of all bytes` : "nothing";
  const map = heatMap(byId("traffic-map"), { describe, choose: (flow) => showHighlight(callsBetween(flow)) });
  const place = new Map(ranks.map((rank, at) => [rank, at]));
  const show = (what) => {
    const largest = traffic.reduce((most, flow) => Math.max(most, flow[what]), 1), some = traffic.filter((flow) => flow[what] > 0);
    // By the square root, so that small values are visible beside large ones.
    map.show(ranks.map(nameOf), some.map((flow) => ({ ...flow, row: place.get(flow.from), column: place.get(flow.to), weight: flow[what], part: Math.sqrt(flow[what] / largest) })));
    byId("traffic-map").setAttribute("aria-label", `Traffic by pair: ${counted(some.length, "pair")} of ${ranks.length} workers. The arrow keys move between pairs, Enter highlights its calls.`);
    fillFlows(what);
  };
  choice(byId("traffic-kind"), [["bytes", "bytes"], ["calls", "calls"]], "bytes", show);
  show("bytes");
}

/** The pairs with the most traffic. */
function fillFlows(what) {
  const ranked = traffic.filter((flow) => flow[what] > 0).sort((a, b) => b[what] - a[what]);
  paged(ranked, 18, byId("flows").tBodies[0], byId("flows-more"), (flow) => el("tr", {},
    el("td", {}, el("button", { class: "link", onclick: () => showHighlight(callsBetween(flow)) }, `${nameOf(flow.from)} → ${nameOf(flow.to)}`)),
    el("td", { class: "number" }, flow.calls > 0 ? grouped(flow.calls) : el("span", { class: "muted" }, "answers")), el("td", { class: "number" }, bytes(flow.bytes)),
    el("td", { class: "number share", style: { "--part": flow[what] / ranked[0][what] } }, percent(flow[what] / (allTraffic[what] || 1)))));
}
