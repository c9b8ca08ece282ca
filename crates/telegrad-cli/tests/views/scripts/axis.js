const { equal, deepEqual } = require("node:assert/strict");

const texts = (start, end, width) => axisTicks({ start, end }, width).ticks.map(({ text }) => text);
deepEqual(texts(0, 1000, 500), ["0.0 ms", "0.2 ms", "0.4 ms", "0.6 ms", "0.8 ms", "1.0 ms"]);
deepEqual(texts(-10, 90, 400), ["0 µs", "50 µs"]);
deepEqual(texts(0, 4e6, 400), ["0 s", "1 s", "2 s", "3 s", "4 s"]);
// At every zoom and position, texts are distinct and have enough space.
for (const [start, length] of [[0, 0.02], [123456.7, 0.02], [5e6, 3], [1e8, 0.5]]) {
  const { ticks, distance } = axisTicks({ start, end: start + length }, 1000);
  equal(new Set(ticks.map(({ text }) => text)).size, ticks.length);
  equal(distance / length * 1000 >= 99.9, true);
}
