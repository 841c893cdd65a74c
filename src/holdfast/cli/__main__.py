from holdfast.cli.app import main

main()
