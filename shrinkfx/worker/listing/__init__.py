"""Listings: programs as statements and recipes, and which rewrites of them are any."""
