// Command breakwater shows what the policies do to a call.
package main

func main() {}
