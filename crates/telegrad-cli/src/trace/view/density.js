// The density of events, where single events do not fit.

/** Prefix sums. */
function sumsOf(values) {
  const sums = new Float64Array(values.length + 1);
  values.forEach((value, at) => { sums[at + 1] = sums[at] + value; });
  return sums;
}
/** The total duration of events up to a time. */
function takenUntil({ starts, ends, startSums, endSums }, at) {
  const begun = lowerBound(starts, at), ended = lowerBound(ends, at);
  return begun * at - startSums[begun] - (ended * at - endSums[ended]);
}
/** The starts and ends of the events in some lanes, and the maximum number of concurrent ones. */
function densityOf(lanes, test = null) {
  const all = lanes.flatMap((lane) => lane.events), some = test ? all.filter(test) : all;
  const starts = Float64Array.from(some, (event) => event.start).sort(), ends = Float64Array.from(some, (event) => event.end).sort();
  let most = 1;
  for (let at = 0, ended = 0; at < starts.length; at++) {
    while (ends[ended] <= starts[at]) ended++;
    most = Math.max(most, at + 1 - ended);
  }
  return { starts, ends, most, startSums: sumsOf(starts), endSums: sumsOf(ends) };
}
/** The starts of failed events: in some lanes, and in the lanes below them of the same rows. */
function failuresOf(lanes) {
  const all = lanes.flatMap((lane) => lane.row.lanes.slice(lane.depth)).filter((lane) => lane.failed.at(-1) > 0);
  return Float64Array.from(all.flatMap((lane) => lane.events.filter(isBad)), (event) => event.start).sort();
}

/** The mean number of concurrent events per pixel. */
function densityIn(density, shown, width) {
  const perPixel = (shown.end - shown.start) / width, counts = new Float64Array(Math.ceil(width));
  let before = takenUntil(density, shown.start);
  for (let pixel = 0; pixel < counts.length; pixel++) {
    const until = takenUntil(density, shown.start + (pixel + 1) * perPixel);
    counts[pixel] = Math.max((until - before) / perPixel, 0);
    before = until;
  }
  return counts;
}
