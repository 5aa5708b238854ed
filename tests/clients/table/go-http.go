package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	for _, url := range os.Args[1:] {
		response, err := http.Get(url)
		if err != nil {
			fmt.Println("000", url, err)
			continue
		}
		response.Body.Close()
		fmt.Println(response.StatusCode, url)
	}
}
