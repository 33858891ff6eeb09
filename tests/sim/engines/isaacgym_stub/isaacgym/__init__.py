"""Names and signatures of Isaac Gym Preview 4 that the worker uses, recording calls. No physics worth the
name.
"""
