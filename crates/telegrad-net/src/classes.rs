//! Size classes of reusable blocks: four per doubling, so that at most a fifth of a block is unused.

/// The size of a class: `base` times 1, 1.25, 1.5, 1.75, 2, 2.5, …
pub(crate) const fn size_of_class(base: usize, class: usize) -> usize {
    (base / 4 * (4 + class % 4)) << (class / 4)
}

/// The class of the smallest blocks with at least `size` bytes.
pub(crate) const fn class_of_size(base: usize, size: usize) -> usize {
    let quarters = size.div_ceil(base / 4);
    if quarters <= 4 {
        return 0;
    }
    let doublings = (quarters - 1).ilog2() as usize - 2;
    4 * doublings + ((quarters - 1) >> doublings) - 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        let base = 16 * 1024;
        for size in (1..base * 70)
            .step_by(777)
            .chain([base, base + 1, 2 * base, 2 * base + 1])
        {
            let class = class_of_size(base, size);
            assert!(size_of_class(base, class) >= size, "{size}");
            assert!(class == 0 || size_of_class(base, class - 1) < size, "{size}");
        }
    }
}
