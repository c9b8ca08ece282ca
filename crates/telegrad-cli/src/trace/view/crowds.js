// How much goes on at once, where there is no room for each event.

/** The sums of all values before each. */
function sumsOf(values) {
  const sums = new Float64Array(values.length + 1);
  values.forEach((value, at) => { sums[at + 1] = sums[at] + value; });
  return sums;
}
/** How much time events have taken, all in all, until a moment. */
function takenUntil({ starts, ends, startSums, endSums }, at) {
  const begun = lowerBound(starts, at), ended = lowerBound(ends, at);
  return begun * at - startSums[begun] - (ended * at - endSums[ended]);
}
/** When something goes on in some lanes: when events start and when they end, and how many there are at once at most. */
function crowdOf(lanes, test = null) {
  const all = lanes.flatMap((lane) => lane.events), some = test ? all.filter(test) : all;
  const starts = Float64Array.from(some, (event) => event.start).sort(), ends = Float64Array.from(some, (event) => event.end).sort();
  let most = 1;
  for (let at = 0, ended = 0; at < starts.length; at++) {
    while (ends[ended] <= starts[at]) ended++;
    most = Math.max(most, at + 1 - ended);
  }
  return { starts, ends, most, startSums: sumsOf(starts), endSums: sumsOf(ends) };
}
/** When what did not go well began: in some lanes, and in those below them of the same rows. */
function failuresOf(lanes) {
  const all = lanes.flatMap((lane) => lane.row.lanes.slice(lane.depth)).filter((lane) => lane.failed.at(-1) > 0);
  return Float64Array.from(all.flatMap((lane) => lane.events.filter(isBad)), (event) => event.start).sort();
}

/** How many events go on in each pixel, on average. */
function crowdIn(crowd, shown, width) {
  const perPixel = (shown.end - shown.start) / width, counts = new Float64Array(Math.ceil(width));
  let before = takenUntil(crowd, shown.start);
  for (let pixel = 0; pixel < counts.length; pixel++) {
    const until = takenUntil(crowd, shown.start + (pixel + 1) * perPixel);
    counts[pixel] = Math.max((until - before) / perPixel, 0);
    before = until;
  }
  return counts;
}
