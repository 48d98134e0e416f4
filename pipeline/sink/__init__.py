"""The parts of the sinks that do not need Spark: conversion of rows to messages, and the options."""
