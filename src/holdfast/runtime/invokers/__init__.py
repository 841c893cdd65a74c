"""What a system step calls: operations of HTTP services by their OpenAPI documents, and kinds that others bring."""
