// The program of the target that owns the precompiled header of tests. It is never built.
int main() { return 0; }
