const { equal, deepEqual } = require("node:assert/strict");

for (const [value, expected] of [[0, "0 s"], [1, "1 s"], [1.5e-3, "1.50 ms"], [99.96e-6, "100 µs"], [0.9996e-3, "1.00 ms"], [61, "1 min 1 s"], [7260, "2 h 1 min"], [NaN, "–"]]) {
  equal(span(value).replaceAll("\u00a0", " "), expected);
}
equal(bytes(1234).replaceAll("\u00a0", " "), "1.23 kB");
equal(counted(1, "call"), "1 call");
equal(counted(12345, "call"), "12\u202f345 calls");
equal(unnamed(3), "rank 3");

deepEqual([0, 1, 2, 3, 9].map((value) => lowerBound([1, 2, 2, 5], value)), [0, 0, 1, 3, 4]);
// Numbers are not split.
deepEqual(shortened(["worker10", "worker11"]), { common: "worker", rest: ["10", "11"] });
deepEqual(shortened(["a", "b"]), { common: "", rest: ["a", "b"] });

deepEqual([0, 0.0001, 0.5, 1].map((share) => percent(share).replaceAll("\u00a0", " ")), ["0.0 %", "< 0.1 %", "50.0 %", "100.0 %"]);
deepEqual(breakable("f(a -> b)"), ["f(a\u00a0→\u00a0b)"]);

deepEqual(splitName("f(a -> b)#remote_op: g"), { what: "g", calls: ["f(a -> b)"] });
equal(plainName("f(a -> b)#remote_op: g(b -> c)"), "f#remote_op: g");
