module peers/load

go 1.25.0
