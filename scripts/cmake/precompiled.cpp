// The one file of a target that precompiles headers for others.
int main() { return 0; }
