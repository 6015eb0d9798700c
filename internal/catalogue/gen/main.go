// Command gen writes the files that are made from the table of insertion
// points. Run it with go generate ./internal/catalogue.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/belay-run/belay/internal/catalogue"
)

func main() {
	files, err := catalogue.Files()
	if err != nil {
		log.Fatal(err)
	}
	for path, content := range files {
		full := filepath.Join("..", "..", path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(full, content, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
