package main

const thread = 1 // RUSAGE_THREAD
