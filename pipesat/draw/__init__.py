"""Pictures of schedules: a Gantt chart as PNG, a timeline as text."""
