module diorite.example/cat

go 1.21
