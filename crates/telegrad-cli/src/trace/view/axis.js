// The time axis: round numbers, as many as fit.

/** The ticks of the axis for a range of this width in pixels, with their texts and their distance. */
function axisTicks(shown, width) {
  const least = (shown.end - shown.start) / width * 100;
  const power = 10 ** Math.floor(Math.log10(least));
  const distance = power * ([1, 2, 5].find((factor) => factor * power >= least) ?? 10);
  const reach = Math.max(Math.abs(shown.start), Math.abs(shown.end));
  const [unit, name] = reach >= 1e6 ? [1e6, "s"] : reach >= 1e3 ? [1e3, "ms"] : [1, "µs"];
  const digits = clamp(-Math.floor(Math.log10(distance / unit) + 1e-9), 0, 9);
  const ticks = [];
  for (let number = Math.ceil(shown.start / distance); number * distance <= shown.end; number++) {
    ticks.push({ at: number * distance, text: `${(number * distance / unit).toFixed(digits)} ${name}` });
  }
  return { ticks, distance };
}
