//! The H region's rules, its change of heaps, and the L region.
