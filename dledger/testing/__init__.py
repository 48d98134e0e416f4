"""The shipped simulator: the production core, driver and store over a simulated clock, network and disk."""
