//! A job over several nodes: engines in one process that ask each other directly.

mod begins;
mod directory;
mod failures;
mod neglect;
mod nodes;
mod other_ranks;
mod packing;
mod roles;
mod strategies;
mod together;
