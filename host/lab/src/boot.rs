//! One boot from power-on to an operating system, watched.
