"""The daemon as its operators' programs reach it: its calls, and what they answer as documents."""
