// Polls the status, and shows the state of the connection.

/** Milliseconds between requests, until a request is given up, and until a slow answer is reported. */
const INTERVAL = 1000, PATIENCE = 10000, LONG = 2500;
let isPaused = false, isAsking = false, timer = 0, lostSince = null, lastAnswer = null;
document.body.dataset.polls = 0;

/** The answer, or null without one. */
async function fetchStatus() {
  try {
    const response = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}
async function ask() {
  clearTimeout(timer);
  if (isPaused || document.hidden || isAsking) return;
  isAsking = true;
  const began = performance.now(), slow = setInterval(() => showState(performance.now() - began), 500), answer = await fetchStatus();
  clearInterval(slow);
  isAsking = false;
  if (!isPaused && !document.hidden) timer = setTimeout(ask, Math.max(INTERVAL - (performance.now() - began), 50));
  if (answer === null) {
    lostSince ??= lastAnswer ?? Date.now() / 1e3;
  } else {
    [lostSince, lastAnswer] = [null, Date.now() / 1e3];
    take(answer);
    document.body.dataset.polls = Number(document.body.dataset.polls) + 1;
    show();
  }
  showState();
}
/** Shows the state of the connection. The last answer stays visible until the next one. */
function showState(waited = 0) {
  const [kind, text] = isPaused ? ["paused", "❚❚ Paused"] : lostSince !== null ? ["lost", `✕ No answer since ${clock(lostSince)}`]
    : waited >= LONG ? ["late", `… Slow answer: ${span(Math.round(waited / 1e3))}`] : lastAnswer === null ? ["", "Waiting for the first answer"] : ["live", "● Live"];
  byId("state").className = `state ${kind}`;
  write(byId("state"), text);
  document.body.classList.toggle("stale", kind === "lost");
  announce("announce", "state", kind === "lost" ? text : kind === "late" ? "slow answer" : kind);
}
/** Announces a change once to screen readers. */
const announced = new Map();
function announce(region, subject, text) {
  if ((announced.get(subject) ?? "") === text) return;
  announced.set(subject, text);
  byId(region).textContent = text;
}
byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  byId("pause").setAttribute("aria-pressed", isPaused);
  byId("pause").textContent = isPaused ? "Resume" : "Pause";
  showState();
  ask();
});
document.addEventListener("visibilitychange", ask);
