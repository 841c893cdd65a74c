"""Output of the commands: tables, trees and documents."""
