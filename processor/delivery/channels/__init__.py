"""Adapters: how each kind of provider is called. `build` is the only place that knows them all."""
