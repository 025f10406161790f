"""Where stages lie: names, geometry, problem documents, recognising a placement."""
