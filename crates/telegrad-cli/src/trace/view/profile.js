// The recording of this page, and the selected step.

async function unpackData() {
  try {
    const packed = atob(byId("data").textContent), octets = new Uint8Array(packed.length);
    for (let at = 0; at < packed.length; at++) octets[at] = packed.charCodeAt(at);
    const source = new ReadableStream({ start(to) { to.enqueue(octets); to.close(); } });
    const reader = source.pipeThrough(new DecompressionStream("gzip")).getReader(), decoder = new TextDecoder();
    let text = "";
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) text += decoder.decode(piece.value, { stream: true });
    return JSON.parse(text);
  } catch (error) {
    return { title: "No profile", missing: [["this page", `it has no readable profile: ${error.message}`]] };
  } finally {
    byId("data").remove();
  }
}

const profile = readProfile(await unpackData());
const { workers, workerByRank, nameOf, events, lanes, steps } = profile;

/** The selected step, the pieces of its critical path with a known event, and those events. */
let step = null, criticalPieces = [], criticalEvents = new Set();
function takeStep(number) {
  step = steps[number] ?? steps[0] ?? null;
  const known = (step?.critical ?? []).filter(({ event }) => event);
  criticalPieces = known.map(({ event, start, end }) => ({ event, start: Math.max(event.start, start), end: Math.min(event.end, end) })).filter(({ start, end }) => end > start);
  criticalEvents = new Set(criticalPieces.map((piece) => piece.event));
}
takeStep(0);
