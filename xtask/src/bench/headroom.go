// A UDP echo as Go programs have it: one goroutine reads and writes.
package main

import (
	"log"
	"net"
	"os"
)

func main() {
	address, err := net.ResolveUDPAddr("udp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	socket, err := net.ListenUDP("udp", address)
	if err != nil {
		log.Fatal(err)
	}
	if err := socket.SetReadBuffer(4 << 20); err != nil {
		log.Fatal(err)
	}
	datagram := make([]byte, 2048)
	for {
		length, client, err := socket.ReadFromUDPAddrPort(datagram)
		if err == nil {
			_, _ = socket.WriteToUDPAddrPort(datagram[:length], client)
		}
	}
}
